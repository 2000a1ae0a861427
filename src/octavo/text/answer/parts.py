"""What the text of an answer consists of, piece by piece."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The model calls a tool."""

    index: int
    """Calls of an answer are counted from 0."""
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of a call: JSON text."""

    index: int
    text: str


Part: TypeAlias = Content | Reasoning | CallStart | CallArguments


def held_back(text: str, marker: str) -> int:
    """How many characters at the end of a text may be the beginning of a marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0
