"""From request fields to sampling parameters."""

from typing import Any

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.errors import (
    ContextLengthError,
    InvalidParameterError,
    PromptError,
    UnsupportedParameterError,
)
from octavo.server.openai.limits import MAX_CHOICES
from octavo.server.openai.prompts import (
    check_not_empty,
    check_token_ids,
    parse_prompts,
)
from octavo.server.openai.requests import ChatRequest, CompletionRequest
from octavo.server.openai.sampling import chat_params, completion_params, max_tokens_in_context

DEFAULTS: dict[str, float | int] = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}


def completion(**fields: Any) -> SamplingParams:
    return completion_params(CompletionRequest(prompt="x", **fields), DEFAULTS)


def chat(**fields: Any) -> SamplingParams:
    messages = [{"role": "user", "content": "hi"}]
    return chat_params(ChatRequest(messages=messages, **fields), DEFAULTS)


def test_the_request_wins_over_the_model_and_the_model_over_built_in() -> None:
    params = completion(temperature=0.9)
    assert params.temperature == 0.9
    assert (params.top_k, params.repetition_penalty) == (20, 1.1)
    assert (params.top_p, params.min_p) == (1.0, 0.0)
    assert completion(top_k=0, repetition_penalty=1.0).top_k == 0
    assert completion_params(CompletionRequest(prompt="x"), {}).temperature == 1.0


def test_every_sampling_field_arrives() -> None:
    fields: dict[str, Any] = {
        "n": 3,
        "max_tokens": 40,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "frequency_penalty": 0.3,
        "presence_penalty": -0.3,
        "repetition_penalty": 1.2,
        "seed": 11,
        "stop_token_ids": (4, 5),
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "allowed_token_ids": (1, 2),
        "bad_words": ("w",),
        "prompt_logprobs": 3,
        "logprobs": 2,
    }
    sent = {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
    params = completion(**sent, stop=["a", "b"], logit_bias={"5": -1, "6": 200.0})
    assert {name: getattr(params, name) for name in fields} == fields
    assert params.stop == ("a", "b")
    assert params.logit_bias == {5: -1.0, 6: 100.0}


def test_stop_may_be_one_string() -> None:
    assert completion(stop="END").stop == ("END",)
    assert completion(stop=None).stop == ()


@pytest.mark.parametrize("stop", [5, True, [5], ["a", None], {"a": 1}, [["a"]], "", ["a", ""]])
def test_other_stops_are_refused(stop: object) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        completion(stop=stop)
    assert caught.value.parameter == "stop"


def test_max_completion_tokens_is_the_newer_name() -> None:
    assert chat(max_tokens=5).max_tokens == 5
    assert chat(max_completion_tokens=6).max_tokens == 6
    assert chat(max_tokens=5, max_completion_tokens=6).max_tokens == 6
    assert chat().max_tokens is None


def test_chat_logprobs_are_a_switch_and_a_count() -> None:
    assert chat().logprobs is None
    assert chat(logprobs=False).logprobs is None
    assert chat(logprobs=True).logprobs == 0
    assert chat(logprobs=True, top_logprobs=5).logprobs == 5
    assert chat(top_logprobs=0).logprobs is None
    with pytest.raises(InvalidParameterError, match="top_logprobs needs logprobs"):
        chat(top_logprobs=5)


def test_echo_with_logprobs_asks_for_the_prompts() -> None:
    assert completion(echo=True, logprobs=2).prompt_logprobs == 2
    assert completion(echo=True).prompt_logprobs is None
    assert completion(echo=True, max_tokens=0).max_tokens == 1
    with pytest.raises(InvalidParameterError, match="max_tokens"):
        completion(max_tokens=0)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"n": 2, "best_of": 3, "stream": True}, "best_of"),
        ({"n": 1, "best_of": 3, "temperature": 0}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"min_tokens": 20, "max_tokens": 10}, "min_tokens"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"n": 0}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": 2**63}, "seed"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    for make in (completion, chat):
        with pytest.raises((InvalidParameterError, UnsupportedParameterError)) as caught:
            make(**fields)
        assert caught.value.parameter == name


def test_best_of_makes_more_samples_and_scores_them() -> None:
    for make in (completion, chat):
        params = make(n=2, best_of=5, temperature=1)
        assert (params.n, params.logprobs) == (5, 0)
    assert completion(best_of=3, logprobs=2, temperature=1).logprobs == 2


def test_best_of_n_and_text_format_ask_for_nothing() -> None:
    assert completion(n=2, best_of=2, response_format={"type": "text"}).n == 2


@pytest.mark.parametrize(
    ("wanted", "prompt", "default", "expected"),
    [
        (None, 10, 16, 16),
        (None, 90, 16, 10),
        (None, 10, None, 90),
        (None, 99, None, 1),
        (90, 10, 16, 90),
        (1, 99, None, 1),
    ],
)
def test_max_tokens_fits_the_context(
    wanted: int | None, prompt: int, default: int | None, expected: int
) -> None:
    assert max_tokens_in_context(wanted, prompt, 100, default) == expected


@pytest.mark.parametrize(
    ("wanted", "prompt", "total", "completion_tokens"),
    [(None, 100, 101, 1), (None, 1000, 1001, 1), (91, 10, 101, 91), (5, 100, 105, 5)],
)
def test_more_than_the_context_is_refused(
    wanted: int | None, prompt: int, total: int, completion_tokens: int
) -> None:
    with pytest.raises(ContextLengthError) as caught:
        max_tokens_in_context(wanted, prompt, 100, 16)
    assert str(caught.value) == (
        "This model's maximum context length is 100 tokens. However, you requested "
        f"{total} tokens ({prompt} in the messages, {completion_tokens} in the completion). "
        "Please reduce the length of the messages or completion."
    )


@pytest.mark.parametrize(
    ("prompt", "parsed"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_forms_of_prompts(prompt: object, parsed: list[Any]) -> None:
    assert parse_prompts(prompt, max_prompts=4, n=1) == parsed


@pytest.mark.parametrize(
    "prompt", [None, 5, True, {}, [], ["a", 1], ["a", [1]], [1, [2]], [True], [1.5], [None], [{}]]
)
def test_other_prompts_are_refused(prompt: object) -> None:
    with pytest.raises((InvalidParameterError, PromptError)) as caught:
        parse_prompts(prompt, max_prompts=4, n=1)
    assert caught.value.parameter == "prompt"


def test_prompts_and_choices_are_bounded() -> None:
    with pytest.raises(InvalidParameterError, match="at most 4 texts; given: 5"):
        parse_prompts(["x"] * 5, max_prompts=4, n=1)
    with pytest.raises(InvalidParameterError, match=f"at most {MAX_CHOICES}"):
        parse_prompts(["x"] * 4, max_prompts=4, n=MAX_CHOICES // 4 + 1)


@pytest.mark.parametrize("ids", [[-1], [10], [1, True], [1.0], ["1"], [None], [2**70], "abc", None])
def test_token_ids_are_checked(ids: object) -> None:
    with pytest.raises(PromptError) as caught:
        check_token_ids(ids, 10, "prompt")
    assert caught.value.parameter == "prompt"


def test_empty_prompts_are_refused_with_their_place() -> None:
    check_not_empty([1], 0)
    with pytest.raises(PromptError, match="the prompt is empty"):
        check_not_empty([], None)
    with pytest.raises(PromptError, match="prompt 3 is empty"):
        check_not_empty([], 3)
