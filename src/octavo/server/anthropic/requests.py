"""The request fields of Anthropic's Messages API."""

from typing import Annotated, Any

from pydantic import Field

from octavo.server.openai.common_fields import RequestId, TermsFields
from octavo.server.openai.fields import Int, KnownFields, NestedBody, Refused, RequestBody
from octavo.server.openai.limits import MAX_MESSAGES, MAX_TOOLS

MAX_STOP_SEQUENCES = 256
"""Strings in `stop_sequences`."""


class ToolChoice(NestedBody):
    """Whether and which tools are to be called."""

    type: str
    """auto, any, tool or none."""
    name: str | None = None
    """Of the tool, for the type tool."""
    disable_parallel_tool_use: bool | None = None


class OutputConfig(NestedBody):
    """How the answer is to look."""

    format: dict[str, Any] | None = None
    """`{"type": "json_schema", "schema": ...}`"""
    effort: str | None = None
    """Handed to the template as `reasoning_effort`."""


class Thinking(NestedBody):
    """Whether the model's thoughts are shown. How much it thinks is its own affair."""

    type: str
    """adaptive or disabled."""
    display: str | None = None
    """summarized or omitted. Thoughts are shown as they are."""


class Conversation(RequestBody):
    """What is said, and what may be called: the same for an answer and for counting."""

    model: str
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | list[dict[str, Any]] | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None


class CountTokensRequest(Conversation):
    """POST /v1/messages/count_tokens."""


class Metadata(NestedBody):
    """About the request."""

    user_id: str | None = None
    """As `user`."""


class MessagesRequest(Conversation, TermsFields):
    """POST /v1/messages."""

    max_tokens: Annotated[Int, Field(ge=1)]
    stop_sequences: (
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=MAX_STOP_SEQUENCES)]
        | None
    ) = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None
    thinking: Thinking | None = None
    """Null: thoughts are left out of the answer."""
    metadata: Metadata | None = None
    request_id: RequestId = None


_NOT_SERVED = "only what runs in this server is available"
_NO_EFFECT = frozenset(
    {
        "user_profile_id",  # who asks
        "workspace_id",
        "service_tier",
        "inference_geo",
        "cache_control",  # prefixes are shared anyway; answers do not depend on it
    }
)
_REFUSED = {
    "container": Refused(_NOT_SERVED),
    "mcp_servers": Refused(_NOT_SERVED, ([],)),
    "context_management": Refused("conversations are never edited", ({}, {"edits": []})),
    "diagnostics": Refused("differences between prompts are not diagnosed"),
    "output_format": Refused("use output_config"),
    "speed": Refused("there is one speed", ("standard",)),
}
MESSAGES_FIELDS = KnownFields(no_effect=_NO_EFFECT, refused=_REFUSED)
COUNT_FIELDS = KnownFields(
    no_effect=_NO_EFFECT
    | {"metadata", "thinking", "speed"},  # counted before anything is generated
    refused={name: refused for name, refused in _REFUSED.items() if name != "speed"},
)
