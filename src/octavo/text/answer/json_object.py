"""Reading one JSON object while its text comes."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

_SPACE = " \t\n\r"


@dataclass(frozen=True, slots=True)
class Key:
    """A member begins; `text` is its name as JSON, with quotes."""

    text: str


@dataclass(frozen=True, slots=True)
class Value:
    """More of the text of the member's value."""

    text: str


@dataclass(frozen=True, slots=True)
class ValueEnd:
    """The member's value is complete."""


JsonEvent: TypeAlias = Key | Value | ValueEnd


class _At(Enum):
    START = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    VALUE_START = auto()
    VALUE = auto()
    AFTER_VALUE = auto()
    END = auto()
    BROKEN = auto()


class JsonObjectReader:
    """Tells the members of an object one after another. What lies inside the values is not checked."""

    def __init__(self) -> None:
        self._at = _At.START
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._is_scalar = False
        self._piece: list[str] = []
        self._events: list[JsonEvent] = []

    @property
    def has_ended(self) -> bool:
        """Whether the object is complete."""
        return self._at is _At.END

    @property
    def is_broken(self) -> bool:
        """Whether the text is no JSON object."""
        return self._at is _At.BROKEN

    def feed(self, text: str) -> tuple[list[JsonEvent], int]:
        """What more text tells, and how much of it was read: all, or up to the end or the mistake."""
        self._events = []
        count = 0
        for count, character in enumerate(text, 1):
            self._take(character)
            if self._at is _At.BROKEN:
                count -= 1
            if self._at in (_At.END, _At.BROKEN):
                break
        if self._at is _At.VALUE:
            self._tell_value()
        return self._events, count

    def _take(self, character: str) -> None:
        if self._at is _At.VALUE:
            self._take_of_value(character)
        elif self._at is _At.KEY:
            self._piece.append(character)
            if self._ends_string(character):
                self._events.append(Key("".join(self._piece)))
                self._piece, self._at = [], _At.COLON
        elif character not in _SPACE:
            self._take_of_frame(character)

    def _take_of_frame(self, character: str) -> None:
        """What stands between keys and values."""
        match self._at, character:
            case _At.START, "{":
                self._at = _At.FIRST_KEY
            case (_At.FIRST_KEY, '"'):
                self._at, self._in_string = _At.KEY, True
                self._piece = ['"']
            case (_At.FIRST_KEY, "}") | (_At.AFTER_VALUE, "}"):
                self._at = _At.END
            case _At.COLON, ":":
                self._at = _At.VALUE_START
            case _At.VALUE_START, _:
                self._at, self._depth, self._is_scalar = _At.VALUE, 0, character not in '{["'
                self._take_of_value(character)
            case _At.AFTER_VALUE, ",":
                self._at = _At.FIRST_KEY
            case _:
                self._at = _At.BROKEN

    def _take_of_value(self, character: str) -> None:
        if self._in_string:
            self._piece.append(character)
            if self._ends_string(character) and self._depth == 0:
                self._end_value()
            return
        if self._depth == 0 and self._is_scalar and character in ",}" + _SPACE:
            self._end_value()
            if character not in _SPACE:
                self._take_of_frame(character)
            return
        self._piece.append(character)
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._end_value()

    def _ends_string(self, character: str) -> bool:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
            return True
        return False

    def _tell_value(self) -> None:
        if self._piece:
            self._events.append(Value("".join(self._piece)))
            self._piece = []

    def _end_value(self) -> None:
        self._tell_value()
        self._events.append(ValueEnd())
        self._at = _At.AFTER_VALUE
