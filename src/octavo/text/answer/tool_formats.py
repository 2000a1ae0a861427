"""How families of models write tool calls."""

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass

_ALPHANUMERIC = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Calls are JSON objects with a name and arguments."""

    name: str
    start: str
    """Stands before a call, or before all of them. Empty: an answer that begins with an object is a call."""
    end: str = ""
    """Stands after each call."""
    arguments_key: str = "arguments"
    separators: str = ""
    """Characters that may stand between calls, besides whitespace."""
    list_open: str = ""
    list_close: str = ""
    """Around all calls together, when they are asked for."""
    optional_start: str = ""
    """May stand before the calls of an answer that has no other mark."""
    arguments_mark: str = ""
    """Between name and arguments of a call that is no object: name, mark, arguments."""

    def new_call_id(self) -> str:
        """A fresh id of a call. Mistral's templates take nine letters and digits only."""
        if self.name == "mistral":
            return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
        return f"chatcmpl-tool-{secrets.token_hex(16)}"


TOOL_FORMATS: Mapping[str, ToolFormat] = {
    form.name: form
    for form in (
        ToolFormat("hermes", "<tool_call>", "</tool_call>"),
        ToolFormat(
            "llama3_json",
            "",
            arguments_key="parameters",
            separators=";,",
            optional_start="<|python_tag|>",
        ),
        ToolFormat(
            "mistral",
            "[TOOL_CALLS]",
            separators=",[]",
            list_open="[",
            list_close="]",
            arguments_mark="[ARGS]",
        ),
    )
}
"""By the names of vLLM's tool parsers."""

_MARKS = (
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3_json"),
    ('{"name": function name, "parameters"', "llama3_json"),
    ("<tool_call>", "hermes"),
)
_OTHER_MARKS = ("<function=", "<|tool▁call", "<|tool_calls", "<|channel|>")
"""Of formats that are not here."""


def tool_format_of(template: str) -> ToolFormat | None:
    """The format that a chat template shows; Hermes' for one that knows no tools; None for one of another kind."""
    if any(mark in template for mark in _OTHER_MARKS):
        return None
    for mark, name in _MARKS:
        if mark in template:
            return TOOL_FORMATS[name]
    return None if "tools" in template else TOOL_FORMATS["hermes"]
