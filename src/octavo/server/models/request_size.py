"""What the choice of a model needs of a request's body: the model that it names, and how long its prompt is."""

from typing import Any

import msgspec

ID_CHARS = 4
"""A token id counts as so many characters."""


class _Peek(msgspec.Struct):
    """Fields of all dialects that hold text for the model."""

    model: Any = None
    prompt: Any = None
    messages: Any = None
    system: Any = None
    input: Any = None
    instructions: Any = None
    inputs: Any = None
    text_input: Any = None


class _PeekName(msgspec.Struct):
    model: Any = None


_decode = msgspec.json.Decoder(_Peek).decode
_decode_name = msgspec.json.Decoder(_PeekName).decode


def named_model(body: bytes) -> str | None:
    """The `model` of a JSON body; None if there is none, or if it is for the routes to refuse."""
    try:
        name = _decode_name(body).model
    except (msgspec.DecodeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def prompt_chars(body: bytes) -> int:
    """Characters of everything that becomes the prompt; 0 for what the routes will refuse."""
    try:
        peek = _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return 0
    return sum(_chars(getattr(peek, name)) for name in _Peek.__struct_fields__ if name != "model")


def _chars(value: Any) -> int:
    """Of all strings inside; a conversation's roles count too, which is the same for every model."""
    total, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, int) and not isinstance(value, bool):
            total += ID_CHARS
    return total
