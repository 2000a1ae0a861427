"""The highest rate of requests at which a machine keeps to something, found by halving."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.planning.figures import Figures, figures_of
from octavo.planning.setups import MachineSetup
from octavo.planning.workloads import Population, requests_for

LOWEST_RATE = 1 / 64
PRECISION = 0.03
"""Rates are found to this share."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one population for some time, at any rate."""

    people: Population
    seconds: float
    seed: int = 0

    def run(self, setup: MachineSetup, rate: float) -> Figures:
        """A machine under this load, to the last request."""
        machine = setup.machine()
        for request in requests_for(
            self.people, rate, self.seconds, max_model_len=setup.max_model_len, seed=self.seed
        ):
            machine.offer(request)
        machine.run()
        machine.recorder.close(machine.clock, machine.batcher.num_preemptions)
        return figures_of([machine.recorder])


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate that was found, and the run at it; None if even the lowest rate is too much."""

    rate: float
    figures: Figures | None


def find_capacity(setup: MachineSetup, load: Load, is_met: Callable[[Figures], bool]) -> Capacity:
    """The highest rate, to PRECISION, at which a run satisfies `is_met`."""
    found: Capacity | None = None
    low = high = 1.0
    while (figures := load.run(setup, high)) and is_met(figures):
        found, low, high = Capacity(high, figures), high, high * 2
    while found is None:
        low = high / 2
        if low < LOWEST_RATE:
            return Capacity(0.0, None)
        figures = load.run(setup, low)
        if is_met(figures):
            found = Capacity(low, figures)
        else:
            high = low
    while high / low > 1 + PRECISION:
        rate = (low * high) ** 0.5
        figures = load.run(setup, rate)
        if is_met(figures):
            found, low = Capacity(rate, figures), rate
        else:
            high = rate
    return found
