"""Rows of the fields that requests of several routes have in common."""

from collections.abc import Mapping

from support.field_effects.rows import (
    CALLS,
    IS_STREAM,
    NUM_CACHED,
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
    said,
)

EOS, SPECIAL = 2, 1
PRINTABLE = list(range(4, 98))
"""Token ids of one ASCII character."""
NEWLINE = 4 + 94 + 12 + 82 + 10
"""Token id of the line break."""
STOPS = list(range(0, 260, 2))
FREE: Json = {"allowed_token_ids": None}
"""For texts that a grammar makes."""
NO_BOS = "{{ messages }}" * 9
"""A template of a request."""
CHAT_ADDS_SPECIAL_TOKENS = Effect(True, NUM_PROMPT_TOKENS, {"chat_template": NO_BOS})
OTHER_MODEL = Refusal("other", 404, says="does not exist")
REQUEST_ID = Effect("mine", Seen("`id`", lambda answer: answer["id"].endswith("-mine")))
USER = [{"role": "user", "content": "say"}]
TERMS_TEST = Elsewhere(
    "tests/server/test_terms.py", "test_every_route_hands_its_terms_to_the_engine"
)

PARAMETERS: Json = {"type": "object", "properties": {}, "additionalProperties": False}
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
CALL: Json = {**FREE, "tool_choice": "required", "max_tokens": 150, "temperature": 0}
"""An answer that is a call."""


def sampling(max_tokens: str) -> Mapping[str, Row]:
    """Of `SamplingFields`. `max_tokens`: how the request calls it."""
    long: Json = {max_tokens: 48, "temperature": 0}
    return {
        "min_tokens": Effect(8, NUM_TOKENS, {"stop_token_ids": STOPS}),
        "temperature": Effect(0, TEXT),
        "top_p": Effect(1e-8, TEXT),
        "top_k": Effect(1, TEXT),
        "min_p": Effect(1.0, TEXT),
        "frequency_penalty": Effect(2.0, TEXT, long),
        "presence_penalty": Effect(2.0, TEXT, long),
        "repetition_penalty": Effect(4.0, TEXT, long),
        "seed": Effect(7, TEXT),
        "stop": Effect(lambda answer: [TEXT.of(answer)[0][4]], TEXT),
        "stop_token_ids": Effect(STOPS, NUM_TOKENS),
        "ignore_eos": Effect(True, NUM_TOKENS, {**FREE, "logit_bias": {str(EOS): 100}}),
        "include_stop_str_in_output": Effect(True, TEXT, {"logit_bias": {"70": 100}, "stop": ["c"]}),
        "skip_special_tokens": Effect(False, TEXT, {**FREE, "logit_bias": {str(SPECIAL): 100}}),
        "spaces_between_special_tokens": Elsewhere(
            "tests/text/test_detokenizer.py", "test_spaces_between_special_tokens"
        ),
        "logit_bias": Effect({"70": 100}, TEXT),
        "allowed_token_ids": Effect([70, 71], TEXT),
        "bad_words": Effect(lambda answer: [TEXT.of(answer)[0][0]], TEXT),
    }  # fmt: skip


def terms(salt: str) -> Mapping[str, Row]:
    """Of `TermsFields`. `salt`: one that no other request has."""
    return {
        "priority": Refusal(1),
        "cache_salt": Effect(salt, NUM_CACHED, warm=True),
        "user": TERMS_TEST,
        "timeout_s": Refusal(1e-6, 504, says="time"),
    }


TEMPLATE: Mapping[str, Row] = {
    "messages": Effect([{"role": "user", "content": "another"}], NUM_PROMPT_TOKENS),
    "tools": Effect([TOOL], NUM_PROMPT_TOKENS),
    "add_generation_prompt": Effect(False, NUM_PROMPT_TOKENS),
    "continue_final_message": Effect(
        True,
        NUM_PROMPT_TOKENS,
        {"messages": [*USER, {"role": "assistant", "content": "x" * 24}]},
    ),
    "documents": Effect([{"text": "x"}], NUM_PROMPT_TOKENS),
    "chat_template": Effect(NO_BOS, NUM_PROMPT_TOKENS),
    "chat_template_kwargs": Effect({"mood": "glad"}, NUM_PROMPT_TOKENS),
    "reasoning_effort": Effect("low", NUM_PROMPT_TOKENS),
}
"""Of `TemplateBody`, on a server whose template shows them."""

_STREAM: Json = {"stream": True, "stream_options": {"include_usage": True}}
_SCHEMA: Json = {
    **FREE,
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["red"]}}},
}
_LIST: Json = {"type": "array", "items": {"enum": [1]}, "minItems": 3, "maxItems": 3}


def _one_value(value: str) -> Json:
    return {"enum": [value]}


GENERATION: Mapping[str, Row] = {
    **sampling("max_tokens"),
    **terms("a"),
    "model": OTHER_MODEL,
    "n": Effect(2, Seen("the number of choices", lambda answer: len(answer["choices"]))),
    "best_of": Effect(3, NUM_TOKENS),
    "max_tokens": Effect(3, NUM_TOKENS),
    "prompt_logprobs": Effect(
        1,
        Seen(
            "`prompt_logprobs`",
            lambda a: bool(a.get("prompt_logprobs") or a["choices"][0].get("prompt_logprobs")),
        ),
    ),
    "use_beam_search": Effect(True, TEXT, {**FREE, "n": 2}),
    "length_penalty": Elsewhere(
        "tests/core/test_beam_search.py", "test_a_penalty_chooses_between_short_and_long"
    ),
    "early_stopping": Elsewhere("tests/offline/test_beam_search.py", "test_beams_equal_transformers"),
    "response_format.type": Effect("json_object", TEXT, {**FREE, "response_format": {"type": "text"}}),
    "response_format.value": Effect({"enum": ["blue"]}, TEXT, {**FREE, "response_format": {"type": "json_object"}}),
    "response_format.json_schema.schema": Effect(_one_value("blue"), TEXT, _SCHEMA),
    "response_format.json_schema.name": Same("x", "it names the schema", _SCHEMA),
    "response_format.json_schema.description": Same("x", "it is for readers", _SCHEMA),
    "response_format.json_schema.strict": Same(False, "schemas are always followed", _SCHEMA),
    "structured_outputs": Effect({"regex": "[0-9]{3}"}, TEXT, FREE),
    "guided_json": Effect(_one_value("red"), TEXT, FREE),
    "guided_json_object": Effect(True, TEXT, FREE),
    "guided_regex": Effect("[0-9]{3}", TEXT, FREE),
    "guided_choice": Effect(["red"], TEXT, FREE),
    "guided_grammar": Effect('start: "red"', TEXT, FREE),
    "guided_whitespace_pattern": Effect("\\n{2}", TEXT, {**FREE, "guided_json": _LIST}),
    "request_id": REQUEST_ID,
    "return_kv_usage": Effect(True, said("kv_cache")),
    "return_token_ids": Effect(True, said("'token_ids': [")),
    "return_tokens_as_token_ids": Effect(True, said("token_id:"), {"logprobs": 1}),
    "stream": Effect(True, IS_STREAM),
    "stream_options.include_usage": Effect(False, said("prompt_tokens"), _STREAM),
    "stream_options.continuous_usage_stats": Effect(
        True,
        Seen(
            "the number of chunks with usage",
            lambda answer: sum(bool(event.get("usage")) for event in answer["events"]),
        ),
        _STREAM,
    ),
    "stream_options.include_obfuscation": Same(False, "nothing is padded", _STREAM),
}  # fmt: skip
"""Of `GenerationBody`: completions and chat."""


MANY_CALLS = Seen("whether there is more than one call", lambda answer: len(CALLS.of(answer)) > 1)
