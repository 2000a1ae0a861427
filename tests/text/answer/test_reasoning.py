"""Thoughts apart from answers, whole and in pieces; and both together with tool calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import REASONING_PARSERS, TOOL_CALL_PARSERS
from octavo.text.answer.parser import NO_PARSER, AnswerParser, answer_format
from octavo.text.answer.parts import CallArguments, CallStart, Content, Part, Reasoning
from octavo.text.answer.reasoning import REASONING_FORMATS, ReasoningSplitter, reasoning_format_of
from octavo.text.answer.tool_formats import TOOL_FORMATS
from support.parts import joined, pieces_of


def split(pieces: list[str], *, inside: bool = False, form: str = "qwen3") -> list[Part]:
    splitter = ReasoningSplitter(REASONING_FORMATS[form], inside=inside)
    parts: list[Part] = []
    for piece in pieces:
        parts += splitter.add(piece)
    return joined([*parts, *splitter.finish()])


CASES = [
    ("<think>\nHm, so.\n</think>\n\nYes. ", False, [Reasoning("Hm, so."), Content("Yes. ")]),
    ("\n<think>a</think>", False, [Reasoning("a")]),
    ("Hm.</think>Yes", True, [Reasoning("Hm."), Content("Yes")]),
    ("cut off </thi", True, [Reasoning("cut off </thi")]),
    ("<think>\n\n</think>\n\nYes", False, [Content("Yes")]),
    ("Yes <think>no</think>", False, [Content("Yes <think>no</think>")]),
    ("<thin", False, [Content("<thin")]),
    (" <b>", False, [Content(" <b>")]),
    ("", False, []),
]


@pytest.mark.parametrize(("text", "inside", "parts"), CASES)
def test_thoughts_are_split_however_the_text_is_cut(
    text: str, inside: bool, parts: list[Part]
) -> None:
    assert split([text], inside=inside) == parts
    assert split(list(text), inside=inside) == parts
    for cut in range(len(text)):
        assert split([text[:cut], text[cut:]], inside=inside) == parts, cut


@given(
    st.lists(st.sampled_from(("<think>", "</think>", " ", "\n", "a", "<", "</thi")), max_size=9).map("".join),
    st.booleans(),
    st.data(),
)  # fmt: skip
def test_any_text_gives_the_same_however_it_is_cut(
    text: str, inside: bool, data: st.DataObject
) -> None:
    assert split(data.draw(pieces_of(text)), inside=inside) == split([text], inside=inside)


def test_where_an_answer_begins_is_told_by_the_prompt() -> None:
    qwen, deepseek = REASONING_FORMATS["qwen3"], REASONING_FORMATS["deepseek_r1"]
    assert qwen.begins_inside("...<think>\n") and not qwen.begins_inside("...assistant\n")
    assert deepseek.begins_inside("...assistant\n")
    assert not deepseek.begins_inside("...<think>\n\n</think>\n\n")


def test_the_format_is_that_of_the_template() -> None:
    assert reasoning_format_of("... </think> ...") is REASONING_FORMATS["qwen3"]
    assert reasoning_format_of("... [/THINK] ...") is REASONING_FORMATS["mistral"]
    assert reasoning_format_of("...") is None
    chosen = answer_format("</think><tool_call>", "mistral", "none")
    assert set(REASONING_PARSERS) == {*REASONING_FORMATS, NO_PARSER}
    assert set(TOOL_CALL_PARSERS) == set(TOOL_FORMATS)
    assert chosen.reasoning is None and chosen.tools is not None and chosen.tools.name == "mistral"


TEXT = '<think>which?</think>\nSo:\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@given(pieces_of(TEXT))
def test_thoughts_content_and_calls_of_one_answer(pieces: list[str]) -> None:
    form = answer_format("<tool_call> </think> tools", None, None)
    parser = AnswerParser(form, tool_names={"f"}, prompt="")
    parts: list[Part] = []
    for i, piece in enumerate(pieces):
        parts += parser.add(piece, is_last=i == len(pieces) - 1)
    assert joined(parts) == [
        Reasoning("which?"),
        Content("So:"),
        CallStart(0, "f"),
        CallArguments(0, '{"a": 1}'),
    ]
