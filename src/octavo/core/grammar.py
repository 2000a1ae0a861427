"""Grammars as the engine sees them: which tokens may come next. What compiles them lies above the core."""

from array import array
from collections.abc import Sequence
from typing import Protocol

from octavo.core.structured_outputs import StructuredOutputsParams


class Matcher(Protocol):
    """How far one sequence has come in its grammar."""

    def accept(self, token_id: int) -> None:
        """Go on by a token that a mask allowed."""
        ...

    @property
    def error(self) -> str | None:
        """Why it can go no further, if a limit of the grammar's compiler was met."""
        ...


class Grammar(Protocol):
    """A compiled grammar. Requests with equal ones share it."""

    def matcher(self) -> Matcher:
        """A matcher at the beginning."""
        ...


class GrammarCompiler(Protocol):
    """Makes grammars for one model, and the masks of its matchers. Safe to use from several threads."""

    def find(self, params: StructuredOutputsParams) -> Grammar | None:
        """A grammar that has been compiled and is still remembered. At once."""
        ...

    def compile(self, params: StructuredOutputsParams) -> Grammar:
        """The grammar; takes milliseconds or seconds. Raises InvalidParameterError with the place of the mistake."""
        ...

    def masks(self, wanted: "Sequence[tuple[Matcher, array[int]]]") -> list[list[bytes]]:
        """For each matcher the masks (see `StepPlan.masks`) of the next token and, as if they were known, of the token
        after each of these guesses. Masks behind a guess that the matcher does not allow mean nothing.
        """
        ...
