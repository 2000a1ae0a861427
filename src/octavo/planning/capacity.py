"""The highest rate of requests at which a machine keeps to a goal, found by halving."""

from dataclasses import dataclass
from typing import Protocol

from octavo.planning.figures import Figures, figures_of
from octavo.planning.requests import SimRequest
from octavo.planning.setups import MachineSetup
from octavo.planning.targets import Goal
from octavo.planning.traces import in_rhythm
from octavo.planning.workloads import Population, requests_for

LOWEST_RATE = 1 / 64
PRECISION = 0.03
"""Rates are found to this share."""
LOOKS = 16
"""At a run while its requests come: one that has missed its goal is not run to the end."""


class Load(Protocol):
    """Requests that can come at any rate."""

    def at(self, rate: float) -> list[SimRequest]:
        """The requests at this rate, which is a mean, per second."""
        ...


@dataclass(frozen=True, slots=True)
class MadeUpLoad:
    """Requests of one population for some time: more of them at a higher rate."""

    people: Population
    seconds: float
    max_model_len: int
    seed: int = 0

    def at(self, rate: float) -> list[SimRequest]:
        """The requests of this time."""
        return requests_for(
            self.people, rate, self.seconds, max_model_len=self.max_model_len, seed=self.seed
        )


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """A trace: the same requests, sooner or later, bursts and all."""

    requests: tuple[SimRequest, ...]
    """They all fit the context."""
    seed: int = 0

    def at(self, rate: float) -> list[SimRequest]:
        """All of them."""
        return in_rhythm(self.requests, rate, self.seed)


def run_at(setup: MachineSetup, load: Load, rate: float) -> Figures:
    """A machine under this load, to the last request."""
    return figures_of([setup.run(load.at(rate))])


def run_if_met(setup: MachineSetup, load: Load, rate: float, goal: Goal) -> Figures | None:
    """Likewise, if it meets the goal; given up as soon as it cannot any more."""
    requests, machine = load.at(rate), setup.machine()
    for request in requests:
        machine.offer(request)
    num_requests = sum(request.num_turns for request in requests)
    until = shortest = max(request.arrival_s for request in requests) / LOOKS or 1.0
    while machine.num_open:
        machine.advance(until)
        if goal.is_lost(machine.recorder, machine.clock, num_requests):
            return None
        until += max(shortest, until / LOOKS)
    figures = figures_of([machine.run()])
    return figures if goal.is_met(figures) else None


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate that was found, and the run at it; None if even the lowest rate is too much."""

    rate: float
    figures: Figures | None


def find_capacity(setup: MachineSetup, load: Load, goal: Goal) -> Capacity:
    """The highest rate, to PRECISION, at which a run meets the goal.

    Where that asks nothing that a queue would break, it is the rate from which on no more requests get done.
    """
    found: Capacity | None = None
    low = high = 1.0
    met: list[tuple[Capacity, float]] = []
    while (figures := run_if_met(setup, load, high, goal)) is not None:
        # Over four times the rate: a few requests that come at random are no measure of less.
        if len(met) >= 2 and figures.requests_per_s < met[-2][1] * (1 + PRECISION):
            return met[-2][0]
        found, low, high = Capacity(high, figures), high, high * 2
        met.append((found, figures.requests_per_s))
    while found is None:
        low = high / 2
        if low < LOWEST_RATE:
            return Capacity(0.0, None)
        figures = run_if_met(setup, load, low, goal)
        if figures is not None:
            found = Capacity(low, figures)
        else:
            high = low
    while high / low > 1 + PRECISION:
        rate = (low * high) ** 0.5
        figures = run_if_met(setup, load, rate, goal)
        if figures is not None:
            found, low = Capacity(rate, figures), rate
        else:
            high = rate
    return found
