"""Structured output without a server."""

import json
from collections.abc import Iterator

import pytest

from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.errors import InvalidParameterError
from support.offline import assert_idle, make_llm

FORM = StructuredOutputsParams(choice=["yes", "no", "may be"])
BROKEN = StructuredOutputsParams(json={"properties": {"a": {"type": "x"}}})


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with make_llm() as made:
        yield made


def test_each_prompt_has_its_own_form(llm: LLM) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    params = [
        SamplingParams(structured_outputs=FORM, max_tokens=20, n=3),
        SamplingParams(max_tokens=5, ignore_eos=True),
        SamplingParams(structured_outputs=StructuredOutputsParams(json=schema), max_tokens=120),
        SamplingParams(structured_outputs=FORM, max_tokens=1),
    ]
    chosen, free, listed, cut = llm.generate(["a", "b", "c", "d"], params, use_tqdm=False)
    assert {output.text for output in chosen.outputs} <= {"yes", "no", "may be"}
    assert {output.finish_reason for output in chosen.outputs} == {"stop"}
    assert len(free.outputs[0].token_ids) == 5
    assert len(json.loads(listed.outputs[0].text)) == 2
    assert cut.outputs[0].finish_reason == "length" and cut.outputs[0].text in ("y", "n", "m")


def test_a_form_that_cannot_be_followed_names_its_prompt_and_none_runs(llm: LLM) -> None:
    before = llm.kv_stats().num_prompt_tokens
    params = [SamplingParams(), SamplingParams(structured_outputs=BROKEN)]
    with pytest.raises(InvalidParameterError, match=r"prompts\[1\]: .*#/properties/a: Invalid"):
        llm.generate(["a", "b"], params, use_tqdm=False)
    assert llm.kv_stats().num_prompt_tokens == before
    assert_idle(llm)


def test_tools_reach_the_prompt_of_a_chat(llm: LLM) -> None:
    tools = [{"type": "function", "function": {"name": "weather"}}]
    form = SamplingParams(structured_outputs=FORM, max_tokens=20)
    (answer,) = llm.chat([{"role": "user", "content": "Hi"}], form, use_tqdm=False, tools=tools)
    assert '"name": "weather"' in (answer.prompt or "")
