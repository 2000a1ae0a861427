"""Every field of the API: honoured with its type, refused by name, without effect, or unknown."""

from typing import Any

import pytest

from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.openai.fields import ignored_header, parse_request
from octavo.server.openai.known_fields import CHAT_FIELDS, COMPLETION_FIELDS
from octavo.server.openai.requests import ChatRequest, CompletionRequest

MESSAGES = [{"role": "user", "content": "hi"}]

SHARED = [
    "model",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "max_tokens",
    "n",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "user",
    "top_k",
    "min_p",
    "repetition_penalty",
    "use_beam_search",
    "length_penalty",
    "early_stopping",
    "return_kv_usage",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
    "prompt_logprobs",
    "logprob_token_ids",
    "allowed_token_ids",
    "bad_words",
    "echo",
    "add_special_tokens",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "priority",
    "request_id",
    "session_id",
    "return_tokens_as_token_ids",
    "return_token_ids",
    "return_prompt_text",
    "cache_salt",
    "kv_transfer_params",
    "vllm_xargs",
    "repetition_detection",
    "thinking_token_budget",
    "stream_interval",
    "best_of",
    "metadata",
    "store",
    "service_tier",
    "logprobs",
]
CHAT_ONLY = [
    "messages",
    "top_logprobs",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "include_reasoning",
    "functions",
    "function_call",
    "modalities",
    "audio",
    "prediction",
    "web_search_options",
    "verbosity",
    "safety_identifier",
    "prompt_cache_key",
]
COMPLETION_ONLY = ["prompt", "prompt_embeds", "suffix"]


def completion(**fields: Any) -> tuple[CompletionRequest, list[str]]:
    return parse_request(
        CompletionRequest, {"prompt": "x", **fields}, COMPLETION_FIELDS, strict=False
    )


def chat(**fields: Any) -> tuple[ChatRequest, list[str]]:
    return parse_request(ChatRequest, {"messages": MESSAGES, **fields}, CHAT_FIELDS, strict=False)


@pytest.mark.parametrize("name", SHARED + CHAT_ONLY)
def test_every_chat_field_is_known(name: str) -> None:
    places = [
        name in ChatRequest.model_fields,
        name in CHAT_FIELDS.no_effect,
        name in CHAT_FIELDS.refused,
    ]
    assert places.count(True) == 1


@pytest.mark.parametrize("name", SHARED + COMPLETION_ONLY)
def test_every_completion_field_is_known(name: str) -> None:
    places = [
        name in CompletionRequest.model_fields,
        name in COMPLETION_FIELDS.no_effect,
        name in COMPLETION_FIELDS.refused,
    ]
    assert places.count(True) == 1


@pytest.mark.parametrize("name", sorted(set(SHARED + CHAT_ONLY) - {"messages"}))
def test_null_means_the_default(name: str) -> None:
    body, ignored = chat(**{name: None})
    assert getattr(body, name, None) is None
    assert ignored == []


WRONG: dict[str, list[Any]] = {
    "n": ["ten", True, 1.5, [1], {}],
    "max_tokens": ["ten", True, 2.5, "16"],
    "min_tokens": [False, "0"],
    "temperature": ["hot", True, [0.5], 10**400],
    "top_p": ["1", False],
    "top_k": [True, 0.5, "40"],
    "min_p": [True, ""],
    "frequency_penalty": [True, "0"],
    "presence_penalty": [{}, "0"],
    "repetition_penalty": [True, "1"],
    "seed": ["7", True, 0.5],
    "stop_token_ids": [5, ["2"], [True], {"1": 2}],
    "ignore_eos": [0, "false", "yes"],
    "include_stop_str_in_output": [1],
    "skip_special_tokens": ["true"],
    "spaces_between_special_tokens": [0],
    "logit_bias": [[1], {"5": "a"}, {"5": True}, {"5": None}, "x"],
    "allowed_token_ids": ["5", [5.5], [None]],
    "bad_words": ["word", [5]],
    "prompt_logprobs": [True, "5"],
    "add_special_tokens": [1],
    "priority": ["high", True],
    "request_id": [5, "", "x" * 257],
    "return_token_ids": [1],
    "return_tokens_as_token_ids": ["no"],
    "stream": ["true", 1],
    "stream_options": [True, [], {"include_usage": 1}, {"continuous_usage_stats": "x"}],
    "response_format": ["text", {}, {"type": 5}, {"type": "json_schema", "json_schema": "x"}],
    "structured_outputs": ["x", []],
    "guided_regex": [5],
    "guided_choice": ["a", [5]],
    "guided_grammar": [{}],
    "guided_json_object": ["yes"],
    "guided_whitespace_pattern": [5],
    "best_of": [True, "2"],
    "model": [5, ["tiny"]],
    "use_beam_search": [0, "true"],
    "length_penalty": [True, "1"],
    "early_stopping": [5, []],
    "cache_salt": [5, "", "x" * 257],
    "return_kv_usage": [1, "yes"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_wrong_types_are_refused_by_name(name: str, value: object) -> None:
    for parse in (completion, chat):
        with pytest.raises(InvalidParameterError) as caught:
            parse(**{name: value})
        assert (caught.value.parameter or "").partition(".")[0] == name
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", 5),
        ("top_logprobs", True),
        ("max_completion_tokens", "10"),
        ("tools", {"a": 1}),
        ("tools", ["f"]),
        ("tool_choice", 5),
        ("messages", []),
        ("messages", "hi"),
        ("messages", ["hi"]),
        ("messages", None),
        ("add_generation_prompt", 1),
        ("continue_final_message", "yes"),
        ("documents", "text"),
        ("chat_template", 5),
        ("chat_template_kwargs", []),
        ("reasoning_effort", 5),
        ("echo", 1),
    ],
)
def test_wrong_types_of_chat_fields(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        chat(**{name: value})
    assert (caught.value.parameter or "").partition(".")[0] == name


def test_a_missing_required_field_is_named() -> None:
    with pytest.raises(InvalidParameterError, match="prompt is required"):
        parse_request(CompletionRequest, {}, COMPLETION_FIELDS, strict=False)
    with pytest.raises(InvalidParameterError, match="messages is required"):
        parse_request(ChatRequest, {}, CHAT_FIELDS, strict=False)


def test_whole_numbers_may_be_written_as_decimals() -> None:
    body, _ = completion(n=2.0, max_tokens=1e2, temperature=1)
    assert (body.n, body.max_tokens, body.temperature) == (2, 100, 1.0)


REFUSED = {
    "suffix": "end",
    "prompt_embeds": "AAAA",
    "structural_tag": "{}",
    "truncate_prompt_tokens": 5,
    "truncation_side": "left",
    "logprob_token_ids": [1],
    "repetition_detection": {},
    "thinking_token_budget": 5,
    "return_prompt_text": True,
    "kv_transfer_params": {"a": 1},
    "vllm_xargs": {"a": 1},
    "mm_processor_kwargs": {"a": 1},
}
REFUSED_CHAT = {
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "modalities": ["text", "audio"],
    "audio": {"voice": "x"},
    "verbosity": "low",
    "web_search_options": {},
}


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_what_would_change_the_answer_is_refused(name: str, value: object) -> None:
    with pytest.raises(UnsupportedParameterError, match=f"^{name} is not supported") as caught:
        completion(**{name: value})
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("name", "value"),
    {**{k: v for k, v in REFUSED.items() if k not in COMPLETION_ONLY}, **REFUSED_CHAT}.items(),
)
def test_what_would_change_a_chat_is_refused(name: str, value: object) -> None:
    with pytest.raises(UnsupportedParameterError) as caught:
        chat(**{name: value})
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("suffix", ""),
        ("use_beam_search", False),
        ("thinking_token_budget", -1),
        ("vllm_xargs", {}),
    ],
)
def test_a_refused_field_that_asks_for_nothing_is_accepted(name: str, value: object) -> None:
    assert completion(**{name: value})[1] == []


def test_zero_is_not_false() -> None:
    with pytest.raises(UnsupportedParameterError):
        completion(return_prompt_text=0)


@pytest.mark.parametrize("name", sorted(COMPLETION_FIELDS.no_effect))
def test_fields_without_effect_are_accepted_and_not_named(name: str) -> None:
    for value in ("x", 1, {"a": "b"}):
        assert completion(**{name: value})[1] == []


def test_unknown_fields_are_named() -> None:
    _, ignored = chat(temprature=0.5, stream_options={"include_usage": True, "colour": 1}, zzz=None)
    assert ignored == ["temprature", "zzz", "stream_options.colour"]
    form = {"type": "json_schema", "json_schema": {"schema": {}, "shape": 1}, "size": 2}
    assert chat(response_format=form)[1] == [
        "response_format.size",
        "response_format.json_schema.shape",
    ]


def test_unknown_fields_are_refused_when_strict() -> None:
    with pytest.raises(InvalidParameterError, match="temprature"):
        parse_request(
            CompletionRequest, {"prompt": "x", "temprature": 1}, COMPLETION_FIELDS, strict=True
        )
    parse_request(CompletionRequest, {"prompt": "x", "user": "u"}, COMPLETION_FIELDS, strict=True)


def test_the_header_is_safe_and_bounded() -> None:
    header = ignored_header(["a,b", "ü\r\n", "x" * 100, *(f"f{i}" for i in range(100))])
    value = header["x-octavo-ignored-fields"]
    assert value.isascii() and value.isprintable()
    assert value.startswith(f"a?b, ???, {'x' * 64}, f0, ") and value.endswith("...")
    assert len(value) < 2000
    assert ignored_header([]) == {}


def test_messages_stay_short_for_large_values() -> None:
    with pytest.raises(InvalidParameterError) as caught:
        completion(temperature="x" * 1_000_000)
    assert len(str(caught.value)) < 300
