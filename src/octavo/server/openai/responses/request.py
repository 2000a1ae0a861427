"""The request fields of POST /v1/responses."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from octavo.server.openai.common_fields import RequestId, SamplingFields, TermsFields
from octavo.server.openai.fields import Int, KnownFields, NestedBody, Refused
from octavo.server.openai.limits import MAX_MESSAGES, MAX_TOOLS

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

    known: ClassVar[KnownFields] = KnownFields(
        no_effect=frozenset(),
        refused={
            "context": Refused("thoughts go back as items of the input", ("auto",)),
            "mode": Refused("there is one mode", ("standard",)),
        },
    )

    effort: str | None = None
    """Handed to the template as `reasoning_effort`."""
    summary: str | None = None
    """Reasoning is never summarized: auto is nothing."""
    generate_summary: str | None = None


class ResponseStreamOptions(NestedBody):
    """What a stream carries besides text."""

    include_obfuscation: bool | None = None
    """Padding against traffic analysis. Nothing is padded here."""


class ResponsesRequest(SamplingFields, TermsFields):
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
    top_logprobs: Int | None = None
    """With the logprobs that `include` asks for, or by itself."""
    include: list[str] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    """Comes back with the response, as do `user` and the next three."""
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    """There is one, the default."""

    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    request_id: RequestId = None


AS_IN_CHAT = (
    "model", "stream", "parallel_tool_calls", "chat_template", "chat_template_kwargs", "request_id",
    *SamplingFields.model_fields, *TermsFields.model_fields,
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
