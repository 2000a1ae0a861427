"""Reading one tool call, `{"name": ..., "arguments": {...}}`, while its text comes."""

import json
from collections.abc import Collection

from octavo.text.answer.json_object import JsonObjectReader, Key, Value, ValueEnd
from octavo.text.answer.parts import CallArguments, CallStart

_ARGUMENTS = ("arguments", "parameters")


class CallReader:
    """Gives the call as soon as its name is known, and its arguments as they come.

    Arguments that are a string hold JSON once more; they are unpacked. A call without arguments has `{}`.
    """

    def __init__(self, index: int, names: Collection[str] | None) -> None:
        """`names`: what counts as a call; None: any name."""
        self._index = index
        self._names = names
        self._json = JsonObjectReader()
        self._key = ""
        self._value: list[str] = []
        self._name: str | None = None
        self._pending: list[str] = []
        """Arguments that came before the name, or that are a string."""
        self._is_string = False
        self._has_arguments = False
        self._arguments_ended = False
        self.raw = ""
        """All that was read."""
        self.is_refused = False
        """Whether it turned out to be no call."""

    @property
    def has_begun(self) -> bool:
        """Whether the call has been told."""
        return self._name is not None

    @property
    def arguments_ended(self) -> bool:
        """Whether its arguments are complete."""
        return self._arguments_ended

    @property
    def has_ended(self) -> bool:
        """Whether nothing more belongs to it."""
        return self._json.has_ended or self._json.is_broken or self.is_refused

    def feed(self, text: str) -> tuple[list[CallStart | CallArguments], int]:
        """What more text adds, and how much of it was read."""
        parts: list[CallStart | CallArguments] = []
        events, count = self._json.feed(text)
        self.raw += text[:count]
        for event in events:
            if isinstance(event, Key):
                self._key, self._value = _text_of(event.text), []
                self._is_string = False
            elif isinstance(event, Value):
                self._take(event.text, parts)
            elif isinstance(event, ValueEnd):
                self._end_value(parts)
        if self._json.has_ended:
            self._end(parts)
        elif self._json.is_broken and self._name is None:
            self.is_refused = True
        return parts, count

    def _take(self, text: str, parts: list[CallStart | CallArguments]) -> None:
        if self._key not in _ARGUMENTS:
            self._value.append(text)
            return
        if not self._has_arguments:
            self._has_arguments, self._is_string = True, text.startswith('"')
        if self._name is None or self._is_string:
            self._pending.append(text)
        else:
            parts.append(CallArguments(self._index, text))

    def _end_value(self, parts: list[CallStart | CallArguments]) -> None:
        if self._key == "name" and self._name is None:
            name = _text_of("".join(self._value))
            if not name or (self._names is not None and name not in self._names):
                self.is_refused = True
                return
            self._name = name
            parts.append(CallStart(self._index, name))
        if self._key in _ARGUMENTS:
            self._arguments_ended = True
            if self._is_string:
                self._pending = [_text_of("".join(self._pending))]
                self._is_string = False
        if self._name is not None and self._pending and not self._is_string:
            parts.append(CallArguments(self._index, "".join(self._pending)))
            self._pending = []

    def _end(self, parts: list[CallStart | CallArguments]) -> None:
        if self._name is None:
            self.is_refused = True
        elif not self._has_arguments:
            parts.append(CallArguments(self._index, "{}"))


def _text_of(literal: str) -> str:
    """The text of a JSON string; of what is none: nothing."""
    try:
        text = json.loads(literal)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""
