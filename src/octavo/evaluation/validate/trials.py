"""What is run: loads at rates that are shares of what this machine can do, under limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.planning.figures import Figures

SHARES = (0.3, 0.6, 0.85)
"""Of the rate at which a load is done when all its requests come at once."""
RANKED_SHARE = 0.85
"""Near the capacity a small error becomes a long queue: there the order of settings has to be right, no figure."""
RANKED_SEATS = (2, 4)
"""Smaller --max-num-seqs, so small that they matter, that are compared there with the engine's own."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One load at one rate under one limit."""

    load: str
    share: float
    rate: float
    """Requests per second."""
    max_num_seqs: int

    def __str__(self) -> str:
        return f"{self.load} at {self.share:.0%} with {self.max_num_seqs} seqs"


@dataclass(frozen=True, slots=True)
class Run:
    """A trial on the engine, and in the simulator with what steps cost at that time."""

    measured: Figures
    simulated: Figures


def trials_of(load: str, capacity: float, max_num_seqs: int) -> Sequence[Trial]:
    """All trials of a load of which the engine does `capacity` requests per second."""
    trials = [Trial(load, share, share * capacity, max_num_seqs) for share in SHARES]
    rate = RANKED_SHARE * capacity
    smaller = (seats for seats in RANKED_SEATS if seats < max_num_seqs)
    return [*trials, *(Trial(load, RANKED_SHARE, rate, seats) for seats in smaller)]
