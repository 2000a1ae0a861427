"""The parts of an answer as chat completions have them: members of a message or of a chunk's delta."""

from collections.abc import Callable, Iterable
from typing import Any

from octavo.text.answer.parts import CallArguments, CallStart, Content, Part, Reasoning


class ChatParts:
    """Writes the parts of one choice. The same parts give the same message, whole or in deltas joined."""

    def __init__(self, new_call_id: Callable[[], str], *, includes_reasoning: bool) -> None:
        self._new_call_id = new_call_id
        self._includes_reasoning = includes_reasoning
        self.has_calls = False

    def members(self, parts: Iterable[Part]) -> dict[str, Any]:
        """What these parts add: text under `content`, thoughts under `reasoning`, calls under `tool_calls`."""
        members: dict[str, Any] = {}
        calls: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, Content):
                members["content"] = members.get("content", "") + part.text
            elif isinstance(part, Reasoning):
                if self._includes_reasoning:
                    text = members.get("reasoning", "") + part.text
                    members["reasoning"] = members["reasoning_content"] = text
            elif isinstance(part, CallStart):
                self.has_calls = True
                calls.append(self._call(part))
            else:
                _add_arguments(calls, part)
        if calls:
            members["tool_calls"] = calls
        return members

    def message(self, parts: Iterable[Part]) -> dict[str, Any]:
        """All parts of an answer as members of a message."""
        members = self.members(parts)
        calls = members.get("tool_calls", [])
        for call in calls:
            del call["index"]
        content = members.get("content", None if calls else "")
        return {**members, "content": content, "tool_calls": calls}

    def finish_reason(self, reason: str | None) -> str | None:
        """An answer that ends by itself and calls tools says so."""
        return "tool_calls" if reason == "stop" and self.has_calls else reason

    def _call(self, start: CallStart) -> dict[str, Any]:
        return {
            "index": start.index,
            "id": self._new_call_id(),
            "type": "function",
            "function": {"name": start.name, "arguments": ""},
        }


def _add_arguments(calls: list[dict[str, Any]], part: CallArguments) -> None:
    if calls and calls[-1]["index"] == part.index:
        calls[-1]["function"]["arguments"] += part.text
    else:
        calls.append({"index": part.index, "function": {"arguments": part.text}})
