"""Grammars over the tokens of a real vocabulary: what they let through, and what is wrong with those that are refused."""

import json
import sys
import time
from array import array
from typing import Any

import pytest

from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError, UserError
from octavo.text import grammar as grammar_module
from octavo.text.grammar import TokenGrammarCompiler, TokenMatcher
from octavo.text.tokenizer import Tokenizer

pytestmark = pytest.mark.model
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
END = 2


@pytest.fixture(scope="module")
def compiler(smollm2: Tokenizer) -> TokenGrammarCompiler:
    return TokenGrammarCompiler(lambda: smollm2, vocab_size=smollm2.vocab_size, end_token_ids=[END])


def matcher_of(compiler: TokenGrammarCompiler, **options: Any) -> TokenMatcher:
    matcher = compiler.compile(StructuredOutputsParams(**options)).matcher()
    assert isinstance(matcher, TokenMatcher)
    return matcher


def allowed(mask: bytes, token_id: int) -> bool:
    return bool(mask[token_id // 8] >> token_id % 8 & 1)


def accepts(
    compiler: TokenGrammarCompiler, tokenizer: Tokenizer, text: str, **options: Any
) -> bool:
    """Whether every token of a text is allowed in its turn, and then the end."""
    matcher = matcher_of(compiler, **options)
    for token_id in [*tokenizer.encode(text, add_special_tokens=False), END]:
        ((mask,),) = compiler.masks([(matcher, array("i"))])
        assert len(mask) == -(-tokenizer.vocab_size // 32) * 4
        if not allowed(mask, token_id):
            return False
        matcher.accept(token_id)
        assert matcher.error is None
    return True


ANSWERS = [
    ({"json": PERSON}, '{"name": "Ann", "age": 3}', '{"name": "Ann", "age": "3"}'),
    ({"json": PERSON}, '{\n  "name": "Ann",\n  "age": 3\n}', '{"name": "Ann"}'),
    ({"json": json.dumps(PERSON)}, '{"name": "ü 🙂", "age": -1}', '{"name": "Ann", "age": 3, "x": 1}'),
    ({"json": PERSON, "disable_any_whitespace": True}, '{"name":"A","age":3}', '{"name": "A","age":3}'),
    ({"json": PERSON, "whitespace_pattern": " ?"}, '{"name": "A", "age": 3}', '{\n"name": "A", "age": 3}'),
    ({"json": True}, '[1, "a", null]', "[1,]"),
    ({"json": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}}, "[[], [[]]]", "[1]"),
    ({"json": {"properties": {"a": {}}, "type": "object"}, "disable_additional_properties": True}, '{"a": 1}', '{"b": 1}'),
    ({"json": {"properties": {"a": {}}, "type": "object"}}, '{"b": 1}', '["b"]'),
    ({"json_object": True}, '{"a": {"b": [1, 2]}}', "[1]"),
    ({"regex": r"\d{3}-\w+"}, "123-ab_c", "12-abc"),
    ({"regex": r"\d{3}-\w+"}, "123-x", "１２３-x"),
    ({"regex": "^(yes|no)$"}, "yes", "yesno"),
    ({"choice": ["yes", 'a "b"\n', "ünï/\\"]}, 'a "b"\n', "yes!"),
    ({"choice": ["yes", 'a "b"\n', "ünï/\\"]}, "ünï/\\", "y"),
    ({"grammar": 'start: "x" y+\ny: "y" | "z"'}, "xyzy", "x"),
    ({"grammar": 'root ::= "x" y+\ny ::= "y" | "z"'}, "xyzy", "yx"),
    ({"regex": "[a-z]+", "thought_end": "</think>"}, "no </thi\n</think>\n\nabc", "abc"),
    ({"regex": "[a-z]+", "thought_end": "</think>", "thought_start": "<think>"}, "abc", "<think>abc"),
    ({"json": PERSON, "thought_end": "</think>", "thought_start": "<think>"}, '<think>\nso</think>{"name": "A", "age": 3}', "<think></think>"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "good", "bad"), ANSWERS)
def test_exactly_the_right_texts_pass(
    compiler: TokenGrammarCompiler, smollm2: Tokenizer, options: Any, good: str, bad: str
) -> None:
    assert accepts(compiler, smollm2, good, **options)
    assert not accepts(compiler, smollm2, bad, **options)


def test_whitespace_is_bounded(compiler: TokenGrammarCompiler, smollm2: Tokenizer) -> None:
    for count, is_allowed in ((20, True), (21, False), (500, False)):
        text = "{\n" + " " * count + '"name": "A", "age": 3}'
        assert accepts(compiler, smollm2, text, json=PERSON) == is_allowed, count


MISTAKES: list[tuple[dict[str, Any], str, type[UserError]]] = [
    ({"json": {"properties": {"a": {"type": "strin"}}}}, "#/properties/a: Invalid type", InvalidParameterError),
    ({"json": {"items": {"not": {}}, "type": "array"}}, "#/items/not: Unimplemented keys", UnsupportedParameterError),
    ({"json": {"properties": {"a/b": {"anyOf": [{}, {"uniqueItems": True, "type": "array"}]}}}},
     "#/properties/a~1b/anyOf/1/uniqueItems", UnsupportedParameterError),
    ({"json": {"$defs": {"d": {"type": "string", "pattern": "("}}, "properties": {"a": {"$ref": "#/$defs/d"}}}},
     "#/$defs/d: regex parse error", InvalidParameterError),
    ({"json": {"properties": {"a": {"$ref": "#/$defs/nowhere"}}}}, "#/properties/a: Pointer", InvalidParameterError),
    ({"json": {"enum": []}}, "#: Unsatisfiable", InvalidParameterError),
    ({"json": {"properties": {"a": {"minLength": 5, "maxLength": 2, "type": "string"}}, "required": ["a"], "type": "object"}},
     "Unsatisfiable", InvalidParameterError),
    ({"json": False}, "#: no value is valid", InvalidParameterError),
    ({"regex": "("}, "regex parse error", InvalidParameterError),
    ({"regex": "(?=a)b"}, "look-around", InvalidParameterError),
    ({"grammar": 'start: "a" | b'}, "b", InvalidParameterError),
    ({"grammar": 'root ::= "a" | b'}, "not found", InvalidParameterError),
    ({"grammar": "what is this"}, "", InvalidParameterError),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words", "kind"), MISTAKES)
def test_mistakes_are_named_with_their_place(
    compiler: TokenGrammarCompiler, options: dict[str, Any], words: str, kind: type[UserError]
) -> None:
    with pytest.raises(kind) as caught:
        compiler.compile(StructuredOutputsParams(**options))
    message = str(caught.value)
    assert words in message and message.startswith(f"structured_outputs.{next(iter(options))}: ")
    assert caught.value.parameter == "structured_outputs" and len(message) < 500


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "options",
    [
        {"json": {"enum": [f"value {i}" for i in range(30_000)]}},
        {"json": nested(60)},
        {"json": nested(400)},
        {"json": {"type": "string", "minLength": 100_000, "maxLength": 1_000_000}},
        {"json": {"allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(6)]} for i in range(12)]}},
        {"regex": "((a{1,1000}){1,1000}){1,1000}"},
        {"regex": "(a|b|ab)*c(.|\n){0,100000}x"},
        {"grammar": "start: " + "(" * 300 + '"a"' + ")" * 300},
    ],
    ids=["enum", "deep", "too deep", "long", "product", "powers", "window", "parentheses"],
)  # fmt: skip
def test_compiling_takes_bounded_time(
    compiler: TokenGrammarCompiler, options: dict[str, Any]
) -> None:
    start = time.thread_time()
    try:
        matcher = compiler.compile(StructuredOutputsParams(**options)).matcher()
    except UserError as error:
        assert len(str(error)) < 500
    else:
        compiler.masks([(matcher, array("i"))])
    assert time.thread_time() - start < 5


def test_masks_go_on_through_a_guess_and_come_back(
    compiler: TokenGrammarCompiler, smollm2: Tokenizer
) -> None:
    ids = smollm2.encode('{"name": "Ann", "age": 3}', add_special_tokens=False)
    step_by_step = []
    matcher = matcher_of(compiler, json=PERSON)
    for token_id in ids:
        step_by_step += compiler.masks([(matcher, array("i"))])[0]
        matcher.accept(token_id)
    guessing = matcher_of(compiler, json=PERSON)
    assert compiler.masks([(guessing, array("i", ids[:-1]))]) == [step_by_step]
    # The matcher is where it was; a wrong guess only spoils what comes after it.
    wrong = compiler.masks([(guessing, array("i", [*ids[:3], END, 5]))])[0]
    assert wrong[:4] == step_by_step[:4] and len(wrong) == 6
    assert compiler.masks([(guessing, array("i"))]) == [step_by_step[:1]]
    assert guessing.error is None


def test_matchers_of_a_grammar_are_independent(
    compiler: TokenGrammarCompiler, smollm2: Tokenizer
) -> None:
    first, second = (
        matcher_of(compiler, choice=["ab", "cd"]),
        matcher_of(compiler, choice=["ab", "cd"]),
    )
    before = compiler.masks([(second, array("i"))])
    first.accept(smollm2.encode("ab", add_special_tokens=False)[0])
    assert compiler.masks([(second, array("i"))]) == before != compiler.masks([(first, array("i"))])


def test_ids_that_the_tokenizer_lacks_are_never_allowed(smollm2: Tokenizer) -> None:
    size = smollm2.vocab_size + 70  # models pad their vocabularies
    compiler = TokenGrammarCompiler(lambda: smollm2, vocab_size=size, end_token_ids=[END])
    ((mask,),) = compiler.masks([(matcher_of(compiler, regex="(?s:.*)"), array("i"))])
    assert len(mask) == -(-size // 32) * 4
    assert allowed(mask, 5000) and allowed(mask, END) and not allowed(mask, 1)
    assert not any(allowed(mask, token_id) for token_id in range(smollm2.vocab_size, size))


def test_grammars_are_remembered_and_forgotten(
    smollm2: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "MAX_GRAMMARS", 3)
    compiler = TokenGrammarCompiler(
        lambda: smollm2, vocab_size=smollm2.vocab_size, end_token_ids=[END]
    )
    forms = [StructuredOutputsParams(regex=f"a{i}") for i in range(4)]
    assert compiler.find(forms[0]) is None
    first = compiler.compile(forms[0])
    assert compiler.find(StructuredOutputsParams(regex="a0")) is first
    for form in forms[1:]:
        compiler.find(forms[0])  # used: the others are older
        compiler.compile(form)
    assert [compiler.find(form) is not None for form in forms] == [True, False, True, True]


def test_a_model_without_end_token_is_refused(smollm2: Tokenizer) -> None:
    compiler = TokenGrammarCompiler(
        lambda: smollm2, vocab_size=smollm2.vocab_size, end_token_ids=[]
    )
    with pytest.raises(UnsupportedParameterError, match="no end token"):
        compiler.compile(StructuredOutputsParams(regex="a"))


def test_without_the_library_it_is_said_how_to_get_it(
    smollm2: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    compiler = TokenGrammarCompiler(
        lambda: smollm2, vocab_size=smollm2.vocab_size, end_token_ids=[END]
    )
    with pytest.raises(UnsupportedParameterError, match=r"octavo\[grammars\]"):
        compiler.compile(StructuredOutputsParams(regex="a"))


def test_a_vocabulary_with_byte_fallback_writes_any_character(gemma: Tokenizer) -> None:
    end = gemma.eos_token_id
    assert end is not None
    compiler = TokenGrammarCompiler(lambda: gemma, vocab_size=gemma.vocab_size, end_token_ids=[end])
    for text in (" two  spaces", "中文 🙂", "\U0010e56c"):
        matcher = matcher_of(compiler, choice=[text, "other"])
        for token_id in gemma.encode(text, add_special_tokens=False):
            ((mask,),) = compiler.masks([(matcher, array("i"))])
            assert allowed(mask, token_id), (text, gemma.token_text(token_id))
            matcher.accept(token_id)
        ((mask,),) = compiler.masks([(matcher, array("i"))])
        assert allowed(mask, end)
