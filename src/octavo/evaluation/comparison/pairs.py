"""Pairs of legs: in which order they run, which are dropped, and what the rest say. Nothing here measures.

Two systems are compared by the ratio of two legs that ran one after the other. The order alternates (A B, B A,
A B, ...), so that a machine that drifts favours neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.evaluation.comparison.probes import Conditions
from octavo.evaluation.percentiles import median

MOST_DIFFERENCE = 0.15
"""Of a probe within a pair: beyond it, the machine was not the same for both."""
MOST_STEAL = 0.02
MOST_OTHERS = 0.05
"""CPU time of processes that belong to neither."""
ATTEMPTS_PER_PAIR = 2
"""Dropped pairs are run again, until there were this many attempts for each pair that is wanted."""


@dataclass(frozen=True, slots=True)
class PairRatio:
    """How many times better one leg was than the other, and why this does not count, if so."""

    ratio: float
    dropped: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all pairs say. The ratios are those that count."""

    ratios: tuple[float, ...]
    dropped: tuple[str, ...]
    """A reason for each pair that does not count."""

    @property
    def median(self) -> float | None:
        """None where no pair counts."""
        return median(self.ratios) if self.ratios else None


def is_turned(attempt: int) -> bool:
    """Whether the second of two systems runs first, in this attempt from 0."""
    return attempt % 2 == 1


def wants_more(num_kept: int, num_attempts: int, num_wanted: int) -> bool:
    """Whether one more pair is to be run."""
    return num_kept < num_wanted and num_attempts < num_wanted * ATTEMPTS_PER_PAIR


def drop_reason(one: Conditions, other: Conditions) -> str | None:
    """Why two legs cannot be compared; None if they can."""
    readings = (one.before, one.after, other.before, other.after)
    for name, values in (
        ("read bandwidth", [reading.bandwidth for reading in readings]),
        ("barrier latency", [reading.barrier_ns for reading in readings]),
    ):
        difference = max(values) / min(values) - 1 if min(values) > 0 else 0.0
        if difference > MOST_DIFFERENCE:
            return f"{name} changed by {difference:.0%}"
    steal = max(one.steal, other.steal)
    if steal > MOST_STEAL:
        return f"{steal:.1%} of the CPU time was stolen"
    others = max(one.others, other.others)
    if others > MOST_OTHERS:
        return f"other processes took {others:.0%} of the CPU time"
    return None


def times_better(ours: float, theirs: float, *, more_is_better: bool) -> float:
    """The ratio of two figures, above 1 where ours is better."""
    return ours / theirs if more_is_better else theirs / ours


def verdict(pairs: Sequence[PairRatio]) -> Verdict:
    """What pairs say together."""
    return Verdict(
        tuple(pair.ratio for pair in pairs if pair.dropped is None),
        tuple(pair.dropped for pair in pairs if pair.dropped is not None),
    )
