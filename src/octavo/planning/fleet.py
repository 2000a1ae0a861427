"""Several machines behind a router, all of one setup, in one simulated time."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from zlib import crc32

from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.setups import MachineSetup
from octavo.planning.simulator import SimulatedMachine

PREFIX_TOKENS = 64
"""Prompts that begin with so many equal tokens are sent to one machine, as long as it is not overloaded."""
OVERLOAD = 1.25
"""A machine is overloaded with so many times the mean number of open requests (Mirrokni et al., Consistent
Hashing with Bounded Loads, 2018)."""
STABLE_SPARE = 2
"""More open requests than the mean that are never too many: with few requests the mean says little."""


class Routing(Enum):
    """How the router chooses."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    """The fewest open requests; the first of equals."""
    PREFIX_AWARE = "prefix-aware"
    """By the beginning of the prompt, so that a cache of prefixes would find it; least loaded where that one is full."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many machines of one kind."""

    setup: MachineSetup
    num_replicas: int
    routing: Routing

    def run(
        self,
        requests: Sequence[SimRequest],
        *,
        executor: Executor | None = None,
        progress: Callable[[float], None] = lambda _share: None,
    ) -> list[Recorder]:
        """The records of all machines, to the end of the last request.

        Round robin needs no state of the machines: they are simulated by themselves, in the executor's processes if
        there is one. Conversations that go on stay with their machine.
        """
        if self.routing is Routing.ROUND_ROBIN:
            shares = [list(requests[i :: self.num_replicas]) for i in range(self.num_replicas)]
            alone = self.setup.run
            runs = map(alone, shares) if executor is None else executor.map(alone, shares)
            return _counted(runs, self.num_replicas, progress)
        machines = [self.setup.machine() for _ in range(self.num_replicas)]
        router = _Router(machines, self.routing)
        for number, request in enumerate(sorted(requests, key=lambda r: r.arrival_s)):
            router.send(request)
            progress(number / len(requests))
        return [machine.run() for machine in machines]


class _Router:
    """Sends requests to machines and lets time pass in these, each only as far as somebody has to know.

    A machine tells when its number of open requests may change next; until then it need not be simulated.
    """

    def __init__(self, machines: Sequence[SimulatedMachine], routing: Routing) -> None:
        self._machines = machines
        self._routing = routing
        self._due = [math.inf] * len(machines)
        """Before this time a machine's number of open requests stays."""
        self._changes: list[tuple[float, int]] = []
        """A heap of these times with old entries; those of today agree with `_due`."""
        self._loads: list[tuple[int, int]] = [(0, i) for i in range(len(machines))]
        """A heap with old entries; those of today agree with `_open`."""
        self._open = [0] * len(machines)

    def send(self, request: SimRequest) -> None:
        """Bring the machines to the moment, choose one, and offer it the request."""
        now = request.arrival_s
        while self._changes and self._changes[0][0] < now:
            due, number = heapq.heappop(self._changes)
            if due == self._due[number]:
                self._advance(number, now)
        number = self._choose(request)
        machine = self._machines[number]
        machine.advance(now)
        machine.offer(request)
        self._look_again(number, max(machine.clock, now))

    def _advance(self, number: int, now: float) -> None:
        machine = self._machines[number]
        machine.advance(now)
        idle = machine.num_open == 0
        self._look_again(number, math.inf if idle else max(machine.idle_until, machine.clock))

    def _look_again(self, number: int, due: float) -> None:
        self._due[number] = due
        heapq.heappush(self._changes, (due, number))
        self._note(number)

    def _note(self, number: int) -> None:
        load = self._machines[number].num_open
        if load != self._open[number]:
            self._open[number] = load
            heapq.heappush(self._loads, (load, number))

    def _choose(self, request: SimRequest) -> int:
        if self._routing is Routing.PREFIX_AWARE:
            home = crc32(request.token_ids[:PREFIX_TOKENS].tobytes()) % len(self._machines)
            mean = (sum(self._open) + 1) / len(self._machines)
            if self._open[home] < OVERLOAD * mean + STABLE_SPARE:
                return home
        while self._loads[0][0] != self._open[self._loads[0][1]]:
            heapq.heappop(self._loads)
        return self._loads[0][1]


def _counted(
    runs: Iterable[Recorder], total: int, progress: Callable[[float], None]
) -> list[Recorder]:
    done: list[Recorder] = []
    for recorder in runs:
        done.append(recorder)
        progress(len(done) / total)
    return done
