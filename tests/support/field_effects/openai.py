"""Rows of the requests of the OpenAI family."""

from collections.abc import Mapping

from support.field_effects.common import (
    CALL,
    CHAT_ADDS_SPECIAL_TOKENS,
    FREE,
    GENERATION,
    MANY_CALLS,
    NEWLINE,
    OTHER_MODEL,
    REQUEST_ID,
    TEMPLATE,
    TERMS_TEST,
    TOOL,
    USER,
    sampling,
    terms,
)
from support.field_effects.rows import (
    CALLS,
    IS_STREAM,
    NUM_PROMPT_TOKENS,
    NUM_TOKENS,
    TEXT,
    Effect,
    Elsewhere,
    Json,
    Refusal,
    Row,
    Same,
    Seen,
    has,
    said,
    shown,
)

COMPLETION: Mapping[str, Row] = {
    **GENERATION,
    "prompt": Effect("another", TEXT),
    "echo": Effect(True, TEXT),
    "logprobs": Effect(2, has("logprobs")),
    "add_special_tokens": Effect(False, NUM_PROMPT_TOKENS),
}

_CONTINUES: Json = {
    "messages": [*USER, {"role": "assistant", "content": "x"}],
    "continue_final_message": True,
}
CHAT: Mapping[str, Row] = {
    **GENERATION,
    **TEMPLATE,
    "max_completion_tokens": Effect(3, NUM_TOKENS),
    "add_special_tokens": CHAT_ADDS_SPECIAL_TOKENS,
    "echo": Effect(True, TEXT, _CONTINUES),
    "logprobs": Effect(True, has("logprobs")),
    "top_logprobs": Effect(
        2,
        Seen(
            "the number of `top_logprobs`",
            lambda a: len(a["choices"][0]["logprobs"]["content"][0]["top_logprobs"]),
        ),
        {"logprobs": True},
    ),
    "return_tokens_as_token_ids": Effect(True, said("token_id:"), {"logprobs": True}),
    "tool_choice": Effect("required", CALLS, {**CALL, "tool_choice": None, "tools": [TOOL]}),
    "parallel_tool_calls": Effect(
        False, MANY_CALLS, {**CALL, "tools": [TOOL], "logit_bias": {str(NEWLINE): 100}}
    ),
    "include_reasoning": Elsewhere("tests/server/test_tools.py", "test_reasoning_is_apart"),
}

TOKENIZE_PROMPT: Mapping[str, Row] = {
    "model": OTHER_MODEL,
    "prompt": Effect("another", NUM_PROMPT_TOKENS),
    "add_special_tokens": Effect(False, NUM_PROMPT_TOKENS),
    "return_token_strs": Effect(True, shown("token_strs")),
}
TOKENIZE_CHAT: Mapping[str, Row] = {
    **TEMPLATE,
    "model": OTHER_MODEL,
    "add_special_tokens": CHAT_ADDS_SPECIAL_TOKENS,
    "return_token_strs": Effect(True, shown("token_strs")),
}
DETOKENIZE: Mapping[str, Row] = {"model": OTHER_MODEL, "tokens": Effect([70], shown("prompt"))}

PREFIX_SALTS = ("c", "d")
_PREFIX: Mapping[str, Row] = {
    "model": OTHER_MODEL,
    "ttl_s": Effect(5, Seen("whether it is kept long", lambda a: a["expires_in_s"] > 60)),
}
TEXT_PREFIX: Mapping[str, Row] = {
    **terms(PREFIX_SALTS[0]),
    **_PREFIX,
    "prompt": Effect("another " * 9, NUM_PROMPT_TOKENS),
    "add_special_tokens": Effect(False, NUM_PROMPT_TOKENS),
}
CHAT_PREFIX: Mapping[str, Row] = {
    **terms(PREFIX_SALTS[1]),
    **_PREFIX,
    **TEMPLATE,
    "add_special_tokens": CHAT_ADDS_SPECIAL_TOKENS,
    "add_generation_prompt": Effect(True, NUM_PROMPT_TOKENS),
    "messages": Effect([{"role": "user", "content": "another " * 9}], NUM_PROMPT_TOKENS),
}

_VECTOR = Seen("the vector", lambda answer: answer["data"][0]["embedding"])
EMBEDDINGS: Mapping[str, Row] = {
    **terms("e"),
    "cache_salt": TERMS_TEST,
    "model": OTHER_MODEL,
    "input": Effect("another", NUM_PROMPT_TOKENS),
    "encoding_format": Effect("base64", _VECTOR),
    "dimensions": Effect(4, _VECTOR),
    "pooling": Effect("mean", _VECTOR),
    "normalize": Effect(False, _VECTOR),
    "truncate_prompt_tokens": Effect(2, NUM_PROMPT_TOKENS),
    "truncation_side": Effect("left", _VECTOR, {"truncate_prompt_tokens": 2}),
    "add_special_tokens": Effect(False, NUM_PROMPT_TOKENS),
    "request_id": REQUEST_ID,
}

_TOOL: Json = {"name": "f", "type": "function", "parameters": TOOL["function"]["parameters"]}
_CALL: Json = {**CALL, "max_tokens": None, "max_output_tokens": 150, "tools": [_TOOL]}
_FORM: Json = {"type": "json_schema", "name": "x", "schema": {"enum": ["red"]}}
RESPONSES: Mapping[str, Row] = {
    **sampling("max_output_tokens"),
    **terms("b"),
    "user": Effect("me", shown("user")),
    "model": OTHER_MODEL,
    "input": Effect("another", NUM_PROMPT_TOKENS),
    "instructions": Effect("be brief", NUM_PROMPT_TOKENS),
    "previous_response_id": Effect(lambda answer: answer["id"], NUM_PROMPT_TOKENS),
    "store": Elsewhere("tests/server/test_responses.py", "test_what_is_not_to_be_stored_is_not"),
    "stream": Effect(True, IS_STREAM),
    "stream_options.include_obfuscation": Same(False, "nothing is padded", {"stream": True}),
    "max_output_tokens": Effect(3, NUM_TOKENS),
    "top_logprobs": Effect(2, said("logprob'")),
    "include": Effect(["message.output_text.logprobs"], said("logprob'")),
    "text.format": Effect(_FORM, TEXT, FREE),
    "text.verbosity": Refusal("low"),
    "reasoning.effort": Effect("low", NUM_PROMPT_TOKENS),
    "reasoning.summary": Refusal("detailed"),
    "reasoning.generate_summary": Refusal("detailed"),
    "tools": Effect([_TOOL], NUM_PROMPT_TOKENS),
    "tool_choice": Effect("required", CALLS, {**_CALL, "tool_choice": None}),
    "parallel_tool_calls": Effect(False, MANY_CALLS, {**_CALL, "logit_bias": {str(NEWLINE): 100}}),
    "metadata": Effect({"a": "b"}, shown("metadata")),
    "safety_identifier": Effect("me", shown("safety_identifier")),
    "prompt_cache_key": Effect("k", shown("prompt_cache_key")),
    "prompt_cache_retention": Effect("24h", shown("prompt_cache_retention")),
    "service_tier": Same("flex", "there is one tier"),
    "chat_template": TEMPLATE["chat_template"],
    "chat_template_kwargs": TEMPLATE["chat_template_kwargs"],
    "request_id": REQUEST_ID,
}
