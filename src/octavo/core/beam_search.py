"""Beam search as arithmetic: which beams go on, which have ended, and when no better one can come.

The rules are those of `transformers` (generate with num_beams and without sampling), so that the same model gives
the same beams.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import nlargest

from octavo.errors import InvalidParameterError, UnsupportedParameterError

MIN_BEAM_WIDTH, MAX_BEAM_WIDTH = 2, 16


class EarlyStopping(Enum):
    """When a search ends whose `beam_width` best ended beams are known."""

    HEURISTIC = False
    """When the best running beam, were it to end now, would be no better than the worst that has ended."""
    AT_ONCE = True
    NEVER = "never"
    """When no running beam can become better, however it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """What to search for. Names are vLLM's and transformers'. Raises InvalidParameterError."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    """Beams are not drawn: only 0."""
    length_penalty: float = 1.0
    """A beam's score is its log-probability divided by its length to this power: above 0 favours long ones."""
    early_stopping: bool | str = False

    def __post_init__(self) -> None:
        for name, low, high in (
            ("beam_width", MIN_BEAM_WIDTH, MAX_BEAM_WIDTH),
            ("max_tokens", 1, None),
        ):
            value = getattr(self, name)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or value < low or (high is not None and value > high):
                limits = f"at least {low}" if high is None else f"from {low} to {high}"
                raise InvalidParameterError(
                    f"{name} must be an integer, {limits}; given: {value!r}",
                    parameter=name,
                    value=value,
                )
        if self.temperature != 0.0:
            raise UnsupportedParameterError(
                f"beam search draws nothing: temperature must be 0; given: {self.temperature}",
                parameter="temperature",
                value=self.temperature,
            )
        if not -100.0 <= self.length_penalty <= 100.0:
            raise InvalidParameterError(
                f"length_penalty must be from -100 to 100; given: {self.length_penalty}",
                parameter="length_penalty",
                value=self.length_penalty,
            )
        if self.early_stopping not in (False, True, "never"):
            raise InvalidParameterError(
                f'early_stopping must be true, false or "never"; given: {self.early_stopping!r}',
                parameter="early_stopping",
                value=self.early_stopping,
            )


@dataclass(frozen=True, slots=True)
class Beam:
    """A beginning of an answer."""

    token_ids: tuple[int, ...]
    """Generated tokens; of one that has ended, with the end token."""
    logprob: float
    """Sum over its tokens."""


@dataclass(frozen=True, slots=True)
class EndedBeam:
    """A whole answer."""

    beam: Beam
    score: float
    """Its log-probability, with the length penalty."""
    end_token_id: int | None
    """None: it reached the most tokens."""


class BeamSearch:
    """The beams of one prompt, from one token to the next."""

    def __init__(
        self, params: BeamSearchParams, end_token_ids: frozenset[int], max_tokens: int
    ) -> None:
        """`max_tokens`: as in `params`, or what the context leaves."""
        self._params = params
        self._end_token_ids = frozenset() if params.ignore_eos else end_token_ids
        self._max_tokens = max_tokens
        self.num_candidates = max(2, 1 + len(self._end_token_ids)) * params.beam_width
        """The most likely next tokens of each beam that `advance` needs (fewer if the vocabulary is smaller).

        So many that `beam_width` beams can go on even if all better candidates end.
        """
        self.running: list[Beam] = [Beam((), 0.0)]
        """Best first. Empty: the search is over."""
        self.ended: list[EndedBeam] = []
        """Best first, at most `beam_width`."""

    def advance(self, next_tokens: Sequence[Sequence[tuple[int, float]]]) -> None:
        """Go on by one token: for each running beam its most likely next (token id, log-probability)."""
        width = self._params.beam_width
        candidates = [
            Beam((*beam.token_ids, token_id), beam.logprob + logprob)
            for beam, tokens in zip(self.running, next_tokens, strict=True)
            for token_id, logprob in tokens
        ]
        best = nlargest(self.num_candidates, candidates, key=lambda beam: beam.logprob)
        num_tokens = len(best[0].token_ids)
        is_last = num_tokens >= self._max_tokens
        going_on = [beam for beam in best if not is_last and not self._has_ended(beam)][:width]
        # Those behind the first `width` only stand in for beams that have ended.
        self._take_ended(beam for beam in best[:width] if is_last or self._has_ended(beam))
        self.running = going_on if going_on and self._may_improve(going_on[0]) else []

    def _has_ended(self, beam: Beam) -> bool:
        return beam.token_ids[-1] in self._end_token_ids

    def _take_ended(self, beams: Iterable[Beam]) -> None:
        for beam in beams:
            last = beam.token_ids[-1]
            self.ended.append(
                EndedBeam(
                    beam,
                    self._score(beam.logprob, len(beam.token_ids)),
                    last if last in self._end_token_ids else None,
                )
            )
        self.ended.sort(key=lambda ended: -ended.score)  # stable: of equal ones the earlier stays
        del self.ended[self._params.beam_width :]

    def _may_improve(self, best: Beam) -> bool:
        """Whether going on could put another beam among the ended ones."""
        if len(self.ended) < self._params.beam_width:
            return True
        stopping, penalty = EarlyStopping(self._params.early_stopping), self._params.length_penalty
        if stopping is EarlyStopping.AT_ONCE:
            return False
        reaches_end = stopping is EarlyStopping.NEVER and penalty > 0
        length = self._max_tokens if reaches_end else len(best.token_ids)
        return self._score(best.logprob, length) > self.ended[-1].score

    def _score(self, logprob: float, length: int) -> float:
        return logprob / math.pow(length, self._params.length_penalty)
