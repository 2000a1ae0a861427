"""Rows of the requests of the other dialects, and of what is no request for text."""

from collections.abc import Mapping

from support.field_effects.common import (
    FREE,
    OTHER_MODEL,
    PARAMETERS,
    REQUEST_ID,
    TERMS_TEST,
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
    shown,
)

_PARTS = "tests/server/test_answers_in_parts.py"
_TOOLS: Json = {"tools": [{"name": name, "input_schema": PARAMETERS} for name in ("f", "g")]}
_NAMED: Json = {**_TOOLS, "tool_choice": {"type": "tool", "name": "f"}, "max_tokens": 150}
_FORM: Json = {"type": "json_schema", "schema": {"enum": ["red"]}}
_CONVERSATION: Mapping[str, Row] = {
    "model": OTHER_MODEL,
    "messages": Effect([{"role": "user", "content": "another"}], NUM_PROMPT_TOKENS),
    "system": Effect("be brief", NUM_PROMPT_TOKENS),
    "tools": Effect(_TOOLS["tools"], NUM_PROMPT_TOKENS),
    "output_config.effort": Effect("low", NUM_PROMPT_TOKENS),
}
_DRAWN: Json = {"temperature": 1.0}
MESSAGES: Mapping[str, Row] = {
    **_CONVERSATION,
    **terms("f"),
    "tool_choice.type": Effect("any", CALLS, {**_TOOLS, "max_tokens": 150, "tool_choice": {"type": "none"}}),
    "tool_choice.name": Effect("g", CALLS, _NAMED),
    "tool_choice.disable_parallel_tool_use": Elsewhere(_PARTS, "test_one_call_or_none"),
    "output_config.format": Effect(_FORM, TEXT),
    "max_tokens": Effect(3, NUM_TOKENS),
    "stop_sequences": Effect(lambda answer: [TEXT.of(answer)[0][:1]], TEXT),
    "stream": Effect(True, IS_STREAM),
    "temperature": Effect(1.0, TEXT),
    "top_p": Effect(1e-8, TEXT, _DRAWN),
    "top_k": Effect(1, TEXT, _DRAWN),
    "thinking.type": Elsewhere(_PARTS, "test_thoughts_of_a_message_are_shown_if_asked_for"),
    "thinking.display": Elsewhere(_PARTS, "test_thoughts_of_a_message_are_shown_if_asked_for"),
    "metadata.user_id": TERMS_TEST,
    "request_id": REQUEST_ID,
}  # fmt: skip
COUNT_TOKENS: Mapping[str, Row] = {
    **_CONVERSATION,
    "tool_choice.type": Effect("none", NUM_PROMPT_TOKENS, _TOOLS),
    "tool_choice.name": Same("g", "all tools are explained, whichever must be called", _NAMED | {"max_tokens": None}),
    "tool_choice.disable_parallel_tool_use": Same(
        True, "nothing is called", {**_TOOLS, "tool_choice": {"type": "auto"}}
    ),
    "output_config.format": Same(_FORM, "it binds what is generated"),
}  # fmt: skip

_DRAWS: Json = {"parameters": {"seed": 5}}
_LONG: Json = {"parameters": {"max_new_tokens": 40}}
_PREFILL: Json = {"parameters": {"decoder_input_details": True}}


def _detail(name: str) -> Seen:
    return Seen(f"`{name}`", lambda answer: bool(answer["details"].get(name)))


TGI: Mapping[str, Row] = {
    "inputs": Effect("another", TEXT),
    "stream": Effect(True, IS_STREAM),
    "add_special_tokens": Effect(False, NUM_PROMPT_TOKENS, _PREFILL),
    "parameters.best_of": Effect(2, _detail("best_of_sequences"), {"parameters": {"do_sample": True}}),
    "parameters.temperature": Effect(1.5, TEXT, _DRAWS),
    "parameters.repetition_penalty": Effect(4.0, TEXT, _LONG),
    "parameters.frequency_penalty": Effect(2.0, TEXT, _LONG),
    "parameters.top_k": Effect(50, TEXT, _DRAWS),
    "parameters.top_p": Effect(0.9, TEXT, _DRAWS),
    "parameters.do_sample": Effect(True, TEXT, _DRAWS),
    "parameters.max_new_tokens": Effect(3, NUM_TOKENS),
    "parameters.return_full_text": Effect(True, TEXT),
    "parameters.stop": Effect(lambda answer: [TEXT.of(answer)[0][0]], TEXT),
    "parameters.truncate": Effect(2, NUM_PROMPT_TOKENS, _PREFILL),
    "parameters.details": Effect(False, Seen("`details`", lambda answer: "details" in answer)),
    "parameters.decoder_input_details": Effect(True, NUM_PROMPT_TOKENS),
    "parameters.seed": Effect(7, TEXT, {"parameters": {"do_sample": True, "seed": 5}}),
    "parameters.top_n_tokens": Effect(2, _detail("top_tokens")),
    "parameters.grammar": Effect({"type": "regex", "value": "[0-9]{3}"}, TEXT),
}  # fmt: skip

INFER: Mapping[str, Row] = {
    "id": Effect("7", shown("id")),
    "parameters": Effect({"max_tokens": 3}, TEXT),
    "inputs": Effect([{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["x"]}], TEXT),
    "outputs": Effect(
        [{"name": "finish_reason"}],
        Seen("names of the outputs", lambda answer: [output["name"] for output in answer["outputs"]]),
    ),
}  # fmt: skip
TRITON: Mapping[str, Row] = {
    "text_input": Effect("another", TEXT),
    "id": Effect("7", shown("id")),
    "parameters": Effect({"max_tokens": 3}, TEXT),
    "stream": Refusal(True),
    "sampling_parameters": Effect('{"max_tokens": 3}', TEXT),
    "exclude_input_in_output": Effect(False, TEXT),
    **{
        f"return_{name}": Effect(True, shown(name))
        for name in ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens")
    },
    "return_num_output_tokens": Effect(False, shown("num_output_tokens")),
}
TRITON_PARAMETERS: Mapping[str, Row] = {
    **sampling("max_tokens"),
    "n": Effect(2, Seen("the number of texts", lambda answer: len(TEXT.of(answer)))),
    "max_tokens": Effect(3, NUM_TOKENS),
    "logprobs": Effect(3, shown("logprobs"), {"return_logprobs": True}),
    "structured_outputs": Effect({"regex": "[0-9]{3}"}, TEXT, FREE),
    "guided_decoding": Effect({"regex": "[0-9]{3}"}, TEXT, FREE),
    "priority": Refusal(1),
    "timeout": Refusal(1, 504, says="time"),
}
_REPOSITORY = "tests/server/kserve/test_server.py"
INDEX: Mapping[str, Row] = {
    "ready": Elsewhere(_REPOSITORY, "test_the_repository_has_the_models_of_the_server")
}
REPOSITORY: Mapping[str, Row] = {
    "parameters": Elsewhere(_REPOSITORY, "test_loading_what_is_loaded_and_nothing_else")
}

_LINES = "tests/server/test_batch_lines.py"
BATCH: Mapping[str, Row] = {
    name: Elsewhere(_LINES, "test_what_is_no_request_is_named")
    for name in ("custom_id", "method", "url", "body")
}
_MODELS = "tests/system/test_several_models.py"
LOAD: Mapping[str, Row] = {"model": Elsewhere(_MODELS, "test_loading_and_unloading_by_command")}
UNLOAD: Mapping[str, Row] = {
    "model": Elsewhere(_MODELS, "test_loading_and_unloading_by_command"),
    "timeout_s": Elsewhere(_MODELS, "test_a_mistake_with_unload"),
    "cancel": Elsewhere(_MODELS, "test_unloading_cancels_what_it_is_told_to"),
}
