"""Fields of chat messages. What becomes of roles and contents: `text.chat_messages`."""

from typing import Any

from octavo.text.chat_messages import ASSISTANT, normalize_messages, text_of

_FIELDS = frozenset(
    {
        "role",
        "content",
        "name",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "reasoning",
        "reasoning_content",
        "thinking",
        "refusal",
    }
)


def split_message_fields(
    messages: list[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Messages with the fields that templates know, and the names of the others (`messages.FIELD`)."""
    ignored: dict[str, None] = {}
    known = []
    for message in messages:
        ignored.update((f"messages.{name}", None) for name in message if name not in _FIELDS)
        known.append({name: value for name, value in message.items() if name in _FIELDS})
    return known, list(ignored)


def last_assistant_text(messages: list[dict[str, Any]]) -> str:
    """The text of the last message if the assistant said it, else nothing."""
    last = messages[-1:]
    if last[0].get("role") != ASSISTANT:
        return ""
    return text_of(normalize_messages(last, knows_developer=True, wants_parts=False)[0])


def text_size(value: object, most: int) -> int:
    """About how many characters a JSON value has; no longer counted when there are more than `most`."""
    size, rest = 0, [value]
    while rest and size <= most:
        part = rest.pop()
        if isinstance(part, str):
            size += len(part)
        elif isinstance(part, dict):
            rest.extend(part.values())
        elif isinstance(part, list):
            rest.extend(part)
        size += 1
    return size
