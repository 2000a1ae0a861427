"""Messages of a chat as templates want them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidParameterError, UnsupportedParameterError

ASSISTANT = "assistant"
DEVELOPER = "developer"
SYSTEM = "system"

TEXT_PARTS = ("text", "input_text", "output_text")
"""Names that OpenAI's interfaces give to the parts that are text."""
_REASONING = ("reasoning_content", "reasoning", "thinking")


def normalize_messages(
    messages: Sequence[Mapping[str, Any]], *, knows_developer: bool, wants_parts: bool
) -> list[dict[str, Any]]:
    """Copies of the messages in one form, whatever form the client chose.

    Text in parts is joined by newlines into a string (or, for templates that want parts, a string becomes one
    part); fields that are null go; a developer is the system where the template does not know developers; the
    arguments of tool calls are objects; reasoning is `reasoning_content`. Raises InvalidParameterError,
    and UnsupportedParameterError for parts that are not text.
    """
    if not messages:
        raise InvalidParameterError("messages must not be empty", parameter="messages", value=[])
    normalized = []
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise _invalid(f"{where} must be an object", message)
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise _invalid(f"{where}.role must be a non-empty string", role)
        if "content" not in message and role != ASSISTANT:
            raise _invalid(f"{where} must have a content", dict(message))
        copy = {key: value for key, value in message.items() if value is not None}
        if role == DEVELOPER and not knows_developer:
            copy["role"] = SYSTEM
        text = _text(message.get("content"), where)
        copy["content"] = [{"type": "text", "text": text}] if wants_parts else text
        if reasoning := next((copy[name] for name in _REASONING if name in copy), None):
            copy["reasoning_content"] = reasoning
        if "tool_calls" in copy:
            copy["tool_calls"] = _tool_calls(copy["tool_calls"], where)
        normalized.append(copy)
    return normalized


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a normalized message."""
    content = message["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def with_text(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A normalized message with another text."""
    is_string = isinstance(message["content"], str)
    return {**message, "content": text if is_string else [{"type": "text", "text": text}]}


def _text(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise _invalid(f"{where}.content must be a string or a list of parts", content)
    texts = []
    for i, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise _invalid(f"{where}.content[{i}] must be an object with a type", part)
        if kind not in TEXT_PARTS:
            raise UnsupportedParameterError(
                f"{where}.content[{i}]: parts of type {kind!r} are not supported, only text",
                parameter="messages",
                value=kind,
            )
        text = part.get("text")
        if not isinstance(text, str):
            raise _invalid(f"{where}.content[{i}].text must be a string", text)
        texts.append(text)
    return "\n".join(texts)


def _tool_calls(calls: object, where: str) -> list[dict[str, Any]]:
    """Tool calls with their arguments as objects: clients send JSON text, templates print objects."""
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise _invalid(f"{where}.tool_calls must be a list of objects", calls)
    parsed = []
    for i, call in enumerate(calls):
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(arguments, str):
            try:
                value = json.loads(arguments) if arguments else {}
            except (ValueError, RecursionError) as error:
                raise _invalid(
                    f"{where}.tool_calls[{i}].function.arguments must be JSON ({error})", arguments
                ) from error
            call = {**call, "function": {**function, "arguments": value}}
        parsed.append(dict(call))
    return parsed


def _invalid(problem: str, value: object) -> InvalidParameterError:
    return InvalidParameterError(f"{problem}; given: {value!r}", parameter="messages", value=value)
