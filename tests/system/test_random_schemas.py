"""JSON schemas at random, followed by the default model: what ends is valid, most does end, and hardly any is refused."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams, StructuredOutputsParams, UserError
from octavo.text.grammar import TokenGrammarCompiler
from octavo.text.tokenizer import load_tokenizer
from support.json_schemas import UNSUPPORTED, random_schema

pytestmark = pytest.mark.model
CHECKED_FORMATS = ("date", "email", "ipv4", "uuid")
"""Those that `jsonschema` checks as the standards have them, without further packages."""
MOST_TOKENS = 512
UNKNOWN = sorted({key for schema in UNSUPPORTED for key in schema} - {"type", "items", "then"})


def check(smollm2_path: Path, count: int) -> None:
    random = Random(7)
    schemas = [random_schema(random) for _ in range(count)]
    checker = jsonschema.FormatChecker(CHECKED_FORMATS)
    reasons: Counter[str] = Counter()
    compiler = compiler_of(smollm2_path)
    followed = [schema for schema in schemas if is_followed(compiler, schema)]
    assert len(followed) >= 0.95 * count
    with LLM(str(smollm2_path), max_model_len=2048, kv_cache_memory_bytes=2**30) as llm:
        answers = llm.generate(
            [prompt(schema) for schema in followed], list(map(params, followed)), use_tqdm=False
        )
        for schema, answer in zip(followed, answers, strict=True):
            output = answer.outputs[0]
            reasons[str(output.finish_reason)] += 1
            if output.finish_reason == "stop":
                value = json.loads(output.text)
                jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)
    assert set(reasons) <= {"stop", "length"}, reasons
    assert reasons["stop"] >= 0.9 * len(followed), reasons


def params(schema: dict[str, Any]) -> SamplingParams:
    form = StructuredOutputsParams(json=schema)
    return SamplingParams(
        temperature=0.8,
        seed=1,
        frequency_penalty=0.3,
        max_tokens=MOST_TOKENS,
        structured_outputs=form,
    )


def prompt(schema: dict[str, Any]) -> str:
    text = json.dumps(schema, ensure_ascii=False)[:1500]
    return (
        f"<|im_start|>user\nA short example of JSON with this schema: {text}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def compiler_of(smollm2_path: Path) -> TokenGrammarCompiler:
    tokenizer = load_tokenizer(smollm2_path)
    assert tokenizer.eos_token_id is not None
    return TokenGrammarCompiler(
        lambda: tokenizer, vocab_size=tokenizer.vocab_size, end_token_ids=[tokenizer.eos_token_id]
    )


def is_followed(compiler: TokenGrammarCompiler, schema: dict[str, Any]) -> bool:
    """Whether a schema can be compiled. If not, the error has the place of a keyword that the library lacks."""
    try:
        compiler.compile(StructuredOutputsParams(json=schema))
    except UserError as error:
        places = [f"#/properties/odd/{name}: Unimplemented" for name in UNKNOWN]
        assert any(place in str(error) for place in places), error
        return False
    return True


def test_random_schemas(smollm2_path: Path) -> None:
    check(smollm2_path, 100)


@pytest.mark.long
def test_a_thousand_random_schemas(smollm2_path: Path) -> None:
    check(smollm2_path, 1000)
