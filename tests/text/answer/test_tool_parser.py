"""Tool calls in the formats of three families, whole and in pieces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.answer.parts import CallArguments, CallStart, Content, Part
from octavo.text.answer.tool_formats import TOOL_FORMATS, tool_format_of
from octavo.text.answer.tool_parser import ToolParser
from support.parts import joined, pieces_of

NAMES = frozenset({"f", "get.weather"})


def read(form: str, pieces: list[str], max_calls: int | None = None) -> list[Part]:
    parser = ToolParser(TOOL_FORMATS[form], NAMES, max_calls=max_calls)
    parts: list[Part] = []
    for piece in pieces:
        parts += parser.add(piece)
    return joined([*parts, *parser.finish()])


def call(index: int, name: str, arguments: str) -> list[Part]:
    return [CallStart(index, name), CallArguments(index, arguments)]


HERMES = [
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', call(0, "f", '{"a": 1}')),
    ('Well.\n<tool_call>{"name":"f"}</tool_call> bye ', [Content("Well."), *call(0, "f", "{}"), Content("bye ")]),
    ('<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"arguments":{"b":"}"},"name":"g"}</tool_call>',
     [*call(0, "f", "{}"), *call(1, "g", '{"b":"}"}')]),
    ('<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"ü\\"}"}</tool_call>', call(0, "f", '{"a": "ü"}')),
    ('<tool_call>{"name": "f", "arguments": {"a": [1, "</tool_call>"]}}</tool_call>', call(0, "f", '{"a": [1, "</tool_call>"]}')),
    ('<tool_call>{"name": "f", "arguments": {"a": ', call(0, "f", '{"a": ')),
    ('<tool_call>{"name": "f", "arguments": {}}</tool', call(0, "f", "{}")),
    ("<tool_call>no JSON</tool_call> x", [Content("<tool_call>no JSON</tool_call> x")]),
    ('<tool_call>{"name": 5}</tool_call>', [Content('<tool_call>{"name": 5}</tool_call>')]),
    ('<tool_call>{"nam', [Content('<tool_call>{"nam')]),
    ("a < b <tool> <tool_c", [Content("a < b <tool> <tool_c")]),
    (" \n", [Content(" \n")]),
]  # fmt: skip
LLAMA = [
    ('{"name": "f", "parameters": {"a": 1}}', call(0, "f", '{"a": 1}')),
    ('\n<|python_tag|>{"name": "f", "parameters": {}}; {"name": "get.weather", "parameters": {}}',
     [*call(0, "f", "{}"), *call(1, "get.weather", "{}")]),
    ('{"name": "Ann", "age": 3}', [Content('{"name": "Ann", "age": 3}')]),
    ('Hi {"name": "f", "parameters": {}}', [Content('Hi {"name": "f", "parameters": {}}')]),
    ('{"name": "f", "parameters": {}} done', [*call(0, "f", "{}"), Content("done")]),
    ("<|python_tag|>print(1)", [Content("<|python_tag|>print(1)")]),
    ("<|pyth", [Content("<|pyth")]),
]  # fmt: skip
MISTRAL = [
    ('[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
     [*call(0, "f", '{"a": 1}'), *call(1, "g", "{}")]),
    ('Yes. [TOOL_CALLS] [{"name":"f","arguments":{}}]', [Content("Yes."), *call(0, "f", "{}")]),
    ('[TOOL_CALLS]f[ARGS]{"a": "]"}[TOOL_CALLS]get.weather{"b": 2}', [*call(0, "f", '{"a": "]"}'), *call(1, "get.weather", '{"b": 2}')]),
    ('[TOOL_CALLS]f[ARGS]{"a": ', call(0, "f", '{"a": ')),
    ("[TOOL_CALLS][]", [Content("[TOOL_CALLS][]")]),
    ("[TOOL_CALLS]f and more", [Content("[TOOL_CALLS]f and more")]),
    ("[1, 2] [TOOL", [Content("[1, 2] [TOOL")]),
]  # fmt: skip
CASES = [
    *(("hermes", *case) for case in HERMES),
    *(("llama3_json", *case) for case in LLAMA),
    *(("mistral", *case) for case in MISTRAL),
]


@pytest.mark.parametrize(("form", "text", "parts"), CASES)
def test_calls_are_found_however_the_text_is_cut(form: str, text: str, parts: list[Part]) -> None:
    assert read(form, [text]) == parts
    assert read(form, list(text)) == parts
    for cut in range(len(text)):
        assert read(form, [text[:cut], text[cut:]]) == parts, cut


FRAGMENTS = (
    "<tool_call>", "</tool_call>", '{"name": "f", ', '"arguments": {"a": "x"}', '"parameters": {}', "}", "{", "[", "]",
    " ", "\n", "hello", '"name"', ": ", "[TOOL_CALLS]", "[ARGS]", "f", ",", ";", "<|python_tag|>", '\\"', '"', "ü",
)  # fmt: skip


@given(
    st.sampled_from(sorted(TOOL_FORMATS)),
    st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join),
    st.data(),
)
def test_any_text_gives_the_same_however_it_is_cut(
    form: str, text: str, data: st.DataObject
) -> None:
    whole = read(form, [text])
    assert read(form, data.draw(pieces_of(text))) == whole
    if not any(isinstance(part, CallStart) for part in whole):
        assert whole == ([Content(text)] if text else [])


def test_arguments_come_before_they_are_complete() -> None:
    parser = ToolParser(TOOL_FORMATS["hermes"], NAMES)
    assert parser.add('<tool_call>{"name": "f", "arg') == [CallStart(0, "f")]
    assert parser.add('uments": {"a": "x') == [CallArguments(0, '{"a": "x')]


def test_further_calls_may_be_left_out() -> None:
    text = '<tool_call>{"name":"f","arguments":{}}</tool_call>' * 3
    assert read("hermes", [text], max_calls=1) == call(0, "f", "{}")


def test_ids_are_fresh_and_of_the_form_that_templates_take() -> None:
    for name, form in TOOL_FORMATS.items():
        ids = {form.new_call_id() for _ in range(100)}
        assert len(ids) == 100
        assert all(len(i) == 9 and i.isalnum() for i in ids) == (name == "mistral")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{% for t in tools %}{% endfor %}<tool_call>", "hermes"),
        ("{{ '[TOOL_CALLS]' }} tools", "mistral"),
        ("<|python_tag|> tools", "llama3_json"),
        ("{{ messages }}", "hermes"),
        ("{{ tools }} in a way of its own", None),
        ("<tool_call><function={{ tools }}", None),
    ],
)
def test_the_format_is_that_of_the_template(template: str, name: str | None) -> None:
    found = tool_format_of(template)
    assert (None if found is None else found.name) == name


def test_joined_arguments_are_json() -> None:
    (_, arguments) = read("hermes", [*HERMES[0][0]])
    assert isinstance(arguments, CallArguments) and json.loads(arguments.text) == {"a": 1}
