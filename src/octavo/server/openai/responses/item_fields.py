"""Fields of the items and tools of a response's request: those that become messages, and what happens to the others."""

from collections.abc import Iterable, Mapping
from typing import Any

from octavo.server.openai.fields import KnownFields, ObjectFields, Refused
from octavo.server.openai.responses.request import ResponsesRequest

_IDS = frozenset({"id", "status"})
_DIRECT = Refused("only the model itself calls functions", ({"type": "direct"},))
_NO_NAMESPACES = Refused("functions have no namespaces")
_NOT_LATER = Refused("functions answer before the next response", (False,))
ITEM_FIELDS: Mapping[str, ObjectFields] = {
    "message": ObjectFields(
        frozenset({"type", "role", "content"}),
        KnownFields(no_effect=_IDS | {"phase"}, refused={}),
    ),
    "function_call": ObjectFields(
        frozenset({"type", "call_id", "name", "arguments"}),
        KnownFields(
            no_effect=_IDS,
            refused={"caller": _DIRECT, "namespace": _NO_NAMESPACES, "async": _NOT_LATER},
        ),
    ),
    "function_call_output": ObjectFields(
        frozenset({"type", "call_id", "output"}),
        KnownFields(
            no_effect=_IDS | {"name"},
            refused={"caller": _DIRECT, "namespace": _NO_NAMESPACES},
        ),
    ),
    "reasoning": ObjectFields(
        frozenset({"type", "content", "summary"}),
        KnownFields(
            no_effect=_IDS,
            refused={"encrypted_content": Refused("it cannot be read here; send the content")},
        ),
    ),
}
"""By their types; items of other types are refused."""
TOOL_FIELDS = ObjectFields(
    frozenset({"type", "name", "description", "parameters", "strict"}),
    KnownFields(
        no_effect=frozenset(),
        refused={
            "allowed_callers": Refused("only the model itself calls functions", (["direct"],)),
            "async": _NOT_LATER,
            "defer_loading": Refused(
                "tools are not searched: send those that may be called", (False,)
            ),
            "output_schema": Refused("say in the description what comes back"),
        },
    ),
)
"""Of tools of the type function; others are refused."""


def unknown_in_lists(body: ResponsesRequest) -> list[str]:
    """Fields of items and tools that nobody knows, by their places. Raises UnsupportedParameterError."""
    items = () if isinstance(body.input, str) else body.input
    return [*_in_items(items), *_in_tools(body.tools or ())]


def _in_items(items: Iterable[dict[str, Any]]) -> list[str]:
    unknown: list[str] = []
    for i, item in enumerate(items):
        fields = ITEM_FIELDS.get(str(item.get("type", "message")))
        if fields is not None:
            unknown += fields.unknown_in(item, f"input[{i}]")
    return unknown


def _in_tools(tools: Iterable[dict[str, Any]]) -> list[str]:
    unknown: list[str] = []
    for i, tool in enumerate(tools):
        if tool.get("type") == "function":
            unknown += TOOL_FIELDS.unknown_in(tool, f"tools[{i}]")
    return unknown
