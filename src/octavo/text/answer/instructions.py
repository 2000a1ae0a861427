"""Tools for chat templates that know none: what Hermes' templates say, in the messages themselves.

Models that were trained on calls understand it; to others it is at least an explanation.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_INTRODUCTION = """You may call functions to help with what the user wants. The functions, in <tools></tools>:
<tools>
{tools}
</tools>
To call one, write a JSON object with its name and its arguments in <tool_call></tool_call>:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>"""


def with_instructions(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The messages with the tools in the system message, and with calls and their results as text."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _INTRODUCTION.format(tools=listed)
    chat = [_as_text(message) for message in messages]
    if chat and chat[0].get("role") in ("system", "developer"):
        return [{**chat[0], "content": _joined(chat[0].get("content"), text)}, *chat[1:]]
    return [{"role": "system", "content": text}, *chat]


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    if message.get("role") == "tool":
        result = _joined("<tool_response>", message.get("content"), "</tool_response>")
        return {"role": "user", "content": result}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return dict(message)
    texts = [_call_text(call) for call in calls]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": _joined(message.get("content"), *texts)}


def _call_text(call: object) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return json.dumps(call, ensure_ascii=False)
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function.get("name"), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {written}}}\n</tool_call>'


def _joined(*contents: object) -> Any:
    """Texts below each other. Contents in parts stay parts."""
    if any(isinstance(content, list) for content in contents):
        parts: list[Any] = []
        for content in contents:
            if isinstance(content, list):
                parts += content
            elif content:
                parts.append({"type": "text", "text": str(content)})
        return parts
    return "\n".join(str(content) for content in contents if content)
