"""What each field of each request does to an answer, as a table: see tests/system/test_field_effects.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

EOS, SPECIAL = 2, 1
PRINTABLE = list(range(4, 98))


@dataclass(frozen=True)
class Effect:
    """With `value`, the answer differs from the one without in what `sees` looks at.

    A value may be a function of the answer without it. `base` are fields that both requests have.
    """

    value: Any
    sees: Callable[[Json], Any]
    base: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The value is refused, with the field's name."""

    value: Any
    status: int = 400
    base: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Elsewhere:
    """Only other models or settings show the effect: a test of this name in this file does."""

    file: str
    test: str


Row = Effect | Refusal | Elsewhere


def text(answer: Json) -> Any:
    """The text of all choices."""
    return [c.get("text", c.get("message", {}).get("content")) for c in answer["choices"]]


def num_prompt_tokens(answer: Json) -> Any:
    """Of the usage."""
    return answer["usage"]["prompt_tokens"]


def num_tokens(answer: Json) -> Any:
    """Of the usage."""
    return answer["usage"]["completion_tokens"]


def first_choice(key: str) -> Callable[[Json], Any]:
    """Whether the first choice has something under this key."""
    return lambda answer: bool(answer["choices"][0].get(key))


_LONG: Json = {"max_tokens": 48, "temperature": 0}
_STOPS = list(range(0, 260, 2))
_FREE: Json = {"allowed_token_ids": None}
_LIST: Json = {"type": "array", "items": {"enum": [1]}, "minItems": 3, "maxItems": 3}
_BEAMS = "tests/server/test_beam_search.py"
_TEXTS = "tests/text/test_detokenizer.py"
_TERMS = "tests/server/test_terms.py"
_PLAN, _CALLS = "tests/server/test_answer_plan.py", "tests/server/test_tools.py"

GENERATION: Mapping[str, Row] = {
    "model": Refusal("other", 404),
    "n": Effect(2, lambda a: len(a["choices"])),
    "best_of": Effect(3, num_tokens),
    "max_tokens": Effect(3, num_tokens),
    "min_tokens": Effect(8, num_tokens, {"stop_token_ids": _STOPS}),
    "temperature": Effect(0, text),
    "top_p": Effect(1e-8, text),
    "top_k": Effect(1, text),
    "min_p": Effect(1.0, text),
    "frequency_penalty": Effect(2.0, text, _LONG),
    "presence_penalty": Effect(2.0, text, _LONG),
    "repetition_penalty": Effect(4.0, text, _LONG),
    "seed": Effect(7, text),
    "stop": Effect(lambda a: [text(a)[0][4]], text),
    "stop_token_ids": Effect(_STOPS, num_tokens),
    "ignore_eos": Effect(True, num_tokens, {"logit_bias": {str(EOS): 100}, "allowed_token_ids": None}),
    "include_stop_str_in_output": Effect(True, text, {"logit_bias": {"70": 100}, "stop": ["c"]}),
    "skip_special_tokens": Effect(False, text, {"logit_bias": {str(SPECIAL): 100}, "allowed_token_ids": None}),
    "spaces_between_special_tokens": Elsewhere(_TEXTS, "spaces_between_special_tokens"),
    "logit_bias": Effect({"70": 100}, text),
    "allowed_token_ids": Effect([70, 71], text),
    "bad_words": Effect(lambda a: [text(a)[0][0]], text),
    "prompt_logprobs": Effect(1, lambda a: bool(a.get("prompt_logprobs") or a["choices"][0].get("prompt_logprobs"))),
    "use_beam_search": Effect(True, text, {"n": 2, "allowed_token_ids": None}),
    "length_penalty": Elsewhere(_BEAMS, "length_penalty"),
    "early_stopping": Elsewhere(_BEAMS, "early_stopping"),
    "response_format": Effect({"type": "json_schema", "json_schema": {"schema": {"enum": ["red"]}}}, text, _FREE),
    "structured_outputs": Effect({"regex": "[0-9]{3}"}, text, _FREE),
    "guided_json": Effect({"enum": ["red"]}, text, _FREE),
    "guided_json_object": Effect(True, text, _FREE),
    "guided_regex": Effect("[0-9]{3}", text, _FREE),
    "guided_choice": Effect(["red"], text, _FREE),
    "guided_grammar": Effect('start: "red"', text, _FREE),
    "guided_whitespace_pattern": Effect("\\n{2}", text, {**_FREE, "guided_json": _LIST}),
    "priority": Refusal(1),
    "user": Elsewhere(_TERMS, "user"),
    "timeout_s": Elsewhere(_TERMS, "timeout_s"),
    "request_id": Effect("mine", lambda a: a["id"].endswith("-mine")),
    "return_kv_usage": Effect(True, lambda a: a["usage"].get("kv_cache") is not None),
    "return_token_ids": Effect(True, first_choice("token_ids")),
    "return_tokens_as_token_ids": Effect(True, lambda a: "token_id:" in str(a), {"logprobs": 1}),
    "stream": Elsewhere("tests/system/test_option_matrix.py", "streamed"),
    "stream_options": Elsewhere("tests/server/test_completions.py", "include_usage"),
    "cache_salt": Elsewhere("tests/server/test_cache_salt.py", "cache_salt"),
}  # fmt: skip
"""Of completions and of chat."""

COMPLETION: Mapping[str, Row] = {
    "prompt": Effect("another", text),
    "echo": Effect(True, text),
    "logprobs": Effect(2, first_choice("logprobs")),
    "add_special_tokens": Effect(False, num_prompt_tokens),
}

CHAT: Mapping[str, Row] = {
    "messages": Effect([{"role": "user", "content": "another"}], num_prompt_tokens),
    "max_completion_tokens": Effect(3, num_tokens),
    "add_special_tokens": Elsewhere("tests/server/test_chat.py", "add_special_tokens"),
    "add_generation_prompt": Effect(False, num_prompt_tokens),
    "continue_final_message": Effect(
        True, num_prompt_tokens, {"messages": [{"role": "assistant", "content": "x"}]}
    ),
    "echo": Effect(
        True,
        text,
        {"messages": [{"role": "assistant", "content": "x"}], "continue_final_message": True},
    ),
    "logprobs": Effect(True, first_choice("logprobs")),
    "top_logprobs": Effect(
        2,
        lambda a: len(a["choices"][0]["logprobs"]["content"][0]["top_logprobs"]),
        {"logprobs": True},
    ),
    "return_tokens_as_token_ids": Effect(True, lambda a: "token_id:" in str(a), {"logprobs": True}),
    "documents": Elsewhere("tests/text/test_chat_template.py", "documents"),
    "chat_template": Refusal("{{ messages }}"),
    "chat_template_kwargs": Refusal({"bos_token": "x"}),
    "reasoning_effort": Elsewhere("tests/server/test_chat.py", "reasoning_effort"),
    "tools": Elsewhere(_CALLS, "tools"),
    "tool_choice": Elsewhere(_PLAN, "tool_choice"),
    "parallel_tool_calls": Elsewhere(_CALLS, "parallel_tool_calls"),
    "include_reasoning": Elsewhere(_CALLS, "include_reasoning"),
}
