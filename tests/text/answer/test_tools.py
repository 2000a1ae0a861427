"""The tools of a request as a grammar: what is allowed is exactly what the parser reads as calls that fit."""

from typing import Any

import pytest

from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError
from octavo.text.answer.parts import CallStart, Content
from octavo.text.answer.tool_formats import TOOL_FORMATS
from octavo.text.answer.tool_parser import ToolParser
from octavo.text.answer.tools import Tool, calls_grammar, schema_mistake, tools_of
from octavo.text.grammar import TokenGrammarCompiler, TokenMatcher
from octavo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.model
F = Tool(
    "f",
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer"}},
    },
    strict=True,
)
G = Tool("g", {"type": "object"})
ONE = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "llama3_json": '{"name": "f", "parameters": {"a": 1}}',
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]',
}
TWO = {
    "hermes": ONE["hermes"] + '\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
    "llama3_json": ONE["llama3_json"] + '; {"name": "g", "parameters": {}}',
    "mistral": ONE["mistral"][:-1] + ', {"name": "g", "arguments": {}}]',
}


@pytest.fixture(scope="module")
def compiler(smollm2: Tokenizer) -> TokenGrammarCompiler:
    return TokenGrammarCompiler(lambda: smollm2, vocab_size=smollm2.vocab_size, end_token_ids=[2])


def accepts(compiler: TokenGrammarCompiler, tokenizer: Tokenizer, grammar: str, text: str) -> bool:
    matcher = compiler.compile(StructuredOutputsParams(grammar=grammar)).matcher()
    assert isinstance(matcher, TokenMatcher)
    ids = tokenizer.encode(text, add_special_tokens=False)
    return matcher.state.try_consume_tokens(ids) == len(ids) and matcher.state.is_accepting()


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_calls_that_must_come(
    compiler: TokenGrammarCompiler, smollm2: Tokenizer, name: str
) -> None:
    form = TOOL_FORMATS[name]
    several = calls_grammar([F, G], form, smollm2, several=True)
    single = calls_grammar([F, G], form, smollm2, several=False)
    for text, is_single in ((ONE[name], True), (TWO[name], False)):
        assert accepts(compiler, smollm2, several, text)
        assert accepts(compiler, smollm2, single, text) == is_single
        parts = [*(parser := ToolParser(form, {"f", "g"})).add(text), *parser.finish()]
        assert [p.name for p in parts if isinstance(p, CallStart)] == (
            ["f"] if is_single else ["f", "g"]
        )
        assert not any(isinstance(part, Content) for part in parts)
    for wrong in ("text", "", ONE[name].replace("1", '"1"'), ONE[name].replace('"f"', '"h"')):
        assert not accepts(compiler, smollm2, several, wrong)


@pytest.mark.parametrize("name", ["hermes", "mistral"])
def test_strict_calls_that_may_come(
    compiler: TokenGrammarCompiler, smollm2: Tokenizer, name: str
) -> None:
    grammar = calls_grammar([F, G], TOOL_FORMATS[name], smollm2, several=True, may_speak=True)
    any_arguments = TWO[name].replace("{}", '{"x": [1]}')
    for text in ("", "Just text, a < b [1].", ONE[name], f"Well.\n{TWO[name]}", any_arguments):
        assert accepts(compiler, smollm2, grammar, text), text
    assert not accepts(compiler, smollm2, grammar, "Well." + ONE[name].replace("1", '"1"'))


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"type": "other"}, r"tools\[1\].type"),
        ({"type": "function", "function": "f"}, r"tools\[1\].function"),
        ({"type": "function", "function": {"name": "x" * 257}}, r"tools\[1\].function.name"),
        ({"type": "function", "function": {"name": "f", "parameters": []}}, "parameters"),
    ],
)
def test_tools_are_checked(entry: dict[str, Any], place: str) -> None:
    good = {"type": "function", "function": {"name": "f", "strict": True}}
    schema_at = "tools[0].input_schema"
    assert tools_of([good], "input_schema") == [Tool("f", {"type": "object"}, True, schema_at)]
    with pytest.raises(InvalidParameterError, match=place):
        tools_of([good, entry])


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"x": {"not": {}}}}, ".properties.x.not"),
        ({"properties": {"a b": {"anyOf": [{}, {"type": "what"}]}}}, ".properties['a b'].anyOf[1]"),
        ({"$defs": {"d": {"type": "string", "pattern": "("}}, "$ref": "#/$defs/d"}, ".$defs.d"),
        ({"properties": {"x": {"$ref": "#/nowhere"}}}, ".properties.x"),
        ({"type": "what"}, ""),
    ],
)
def test_a_schema_that_cannot_be_followed_is_named_with_its_place(
    schema: dict[str, Any], place: str
) -> None:
    good = {"type": "function", "function": {"name": "f"}}
    bad = {"type": "function", "function": {"name": "g", "parameters": schema}}
    mistake = schema_mistake(tools_of([good, bad]))
    assert mistake is not None
    assert mistake.startswith(f"tools[1].function.parameters{place}: "), mistake
    assert schema_mistake(tools_of([good])) is None
