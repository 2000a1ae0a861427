"""Fields of content blocks and tools of the Messages API: those that reach the model, and what happens to the others."""

from collections.abc import Mapping
from typing import Any

from octavo.server.anthropic.requests import Conversation
from octavo.server.openai.fields import NO_OTHERS, KnownFields, ObjectFields, Refused

_CACHE = frozenset({"cache_control"})
_DIRECT = Refused("only the model itself calls tools", ({"type": "direct"},))
_NO_TOOLSETS = Refused("there are no toolsets")
MESSAGE_FIELDS = ObjectFields(frozenset({"role", "content"}), NO_OTHERS)
BLOCK_FIELDS: Mapping[str, ObjectFields] = {
    "text": ObjectFields(
        frozenset({"type", "text"}),
        KnownFields(
            no_effect=_CACHE,
            refused={"citations": Refused("write in the text what is cited", ([],))},
        ),
    ),
    "thinking": ObjectFields(
        frozenset({"type", "thinking"}),
        KnownFields(no_effect=frozenset({"signature"}), refused={}),
    ),
    "tool_use": ObjectFields(
        frozenset({"type", "id", "name", "input"}),
        KnownFields(no_effect=_CACHE, refused={"caller": _DIRECT, "toolset_name": _NO_TOOLSETS}),
    ),
    "tool_result": ObjectFields(
        frozenset({"type", "tool_use_id", "content", "is_error"}),
        KnownFields(no_effect=_CACHE, refused={"toolset_name": _NO_TOOLSETS}),
    ),
}
"""By their types; blocks of other types are refused."""
TOOL_FIELDS = ObjectFields(
    frozenset({"type", "name", "description", "input_schema", "strict"}),
    KnownFields(
        no_effect=_CACHE | {"eager_input_streaming"},  # arguments are streamed as they come
        refused={
            "allowed_callers": Refused("only the model itself calls tools", (["direct"],)),
            "defer_loading": Refused(
                "tools are not searched: send those that may be called", (False,)
            ),
            "input_examples": Refused("give examples in the description", ([],)),
        },
    ),
)
"""Of tools that the client runs; others are refused."""


def unknown_in_lists(body: Conversation) -> list[str]:
    """Fields of messages, blocks and tools that nobody knows, by their places. Raises UnsupportedParameterError."""
    unknown: list[str] = []
    for i, message in enumerate(body.messages):
        unknown += MESSAGE_FIELDS.unknown_in(message, f"messages[{i}]")
        unknown += _in_blocks(message.get("content"), f"messages[{i}].content")
    unknown += _in_blocks(body.system, "system")
    for i, tool in enumerate(body.tools or ()):
        if tool.get("type") in (None, "custom"):
            unknown += TOOL_FIELDS.unknown_in(tool, f"tools[{i}]")
    return unknown


def _in_blocks(content: Any, place: str) -> list[str]:
    unknown: list[str] = []
    for i, block in enumerate(content if isinstance(content, list) else ()):
        fields = BLOCK_FIELDS.get(str(block.get("type"))) if isinstance(block, dict) else None
        if fields is not None:
            unknown += fields.unknown_in(block, f"{place}[{i}]")
            if block["type"] == "tool_result":
                unknown += _in_blocks(block.get("content"), f"{place}[{i}].content")
    return unknown
