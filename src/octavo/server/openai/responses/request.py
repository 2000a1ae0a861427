"""The request fields of POST /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import Field

from octavo.core.sampling_params import INT64_MAX, INT64_MIN
from octavo.server.openai.fields import Int, KnownFields, NestedBody, Refused, RequestBody
from octavo.server.openai.limits import MAX_LOGIT_BIASES, MAX_MESSAGES, MAX_TOOLS
from octavo.server.openai.requests import StopInput

LOGPROBS = "message.output_text.logprobs"
"""The one entry of `include` that adds to an answer of text."""
INCLUDABLE = (LOGPROBS, "reasoning.encrypted_content")


class TextConfig(NestedBody):
    """How the text is to look."""

    format: dict[str, Any] | None = None
    """`{"type": "text"}`, or a JSON schema."""
    verbosity: str | None = None
    """Only medium: models here have no levels of verbosity."""


class Reasoning(NestedBody):
    """How much to think."""

    effort: str | None = None
    """Handed to the template as `reasoning_effort`."""
    summary: str | None = None
    """Reasoning is never summarized: auto is nothing."""
    generate_summary: str | None = None


class ResponseStreamOptions(NestedBody):
    """What a stream carries besides text."""

    include_obfuscation: bool | None = None
    """Padding against traffic analysis. Nothing is padded here."""


class ResponsesRequest(RequestBody):
    """POST /v1/responses."""

    model: str | None = None
    input: str | Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    """Stands before the input, and is not kept for the next response."""
    previous_response_id: str | None = None
    """Go on from a stored response."""
    store: bool | None = None
    """Null: yes. The newest responses are kept in memory."""
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: Annotated[Int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Int | None = None
    """With the logprobs that `include` asks for, or by itself."""
    include: list[str] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    """Comes back with the response."""
    user: str | None = None
    """Comes back with the response, as do the next four."""
    safety_identifier: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    top_k: Int | None = None
    min_p: float | None = None
    min_tokens: Int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: Int | None = None
    stop: StopInput = None
    stop_token_ids: list[Int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_LOGIT_BIASES)] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    priority: Annotated[Int, Field(ge=INT64_MIN, le=INT64_MAX)] | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


AS_IN_CHAT = (
    "model", "stream", "temperature", "top_p", "parallel_tool_calls", "top_k", "min_p", "min_tokens", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "seed", "stop", "stop_token_ids", "ignore_eos",
    "include_stop_str_in_output", "skip_special_tokens", "logit_bias", "chat_template", "chat_template_kwargs",
    "priority", "cache_salt", "request_id",
)  # fmt: skip
"""Fields that mean the same in chat."""

RESPONSES_FIELDS = KnownFields(
    no_effect=frozenset(
        {
            "access_programs",  # who asks
            "prompt_cache_options",  # hints for caches; answers do not depend on caches
            "max_tool_calls",  # of tools that the server runs: there are none
            "stream_interval",
        }
    ),
    refused={
        "background": Refused("responses are made while the client waits", (False,)),
        "background_options": Refused("responses are made while the client waits", ({},)),
        "conversation": Refused("use previous_response_id"),
        "context_management": Refused("conversations are never shortened", ([],)),
        "truncation": Refused(
            "prompts are never cut; send at most the model's context", ("disabled",)
        ),
        "prompt": Refused("there are no stored prompt templates"),
        "moderation": Refused("there is no moderation"),
        "image": Refused("this server takes and gives text only"),
        "previous_input_messages": Refused("use previous_response_id"),
        "enable_response_messages": Refused("ask /tokenize", (False,)),
        "mm_processor_kwargs": Refused("this server takes and gives text only", ({},)),
        "vllm_xargs": Refused("there are no custom logits processors", ({},)),
    },
)
