"""Machines are simulated only as far as the router has to know, and the result is as if all were, at every moment."""

import pytest

from octavo.planning.figures import figures_of
from octavo.planning.fleet import OVERLOAD, STABLE_SPARE, Fleet, Routing
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.workloads import Lengths, Population, make_requests
from support.planning import SETUP

PEOPLE = Population(Lengths(60, 1.1), Lengths(60, 0.9))


def by_the_letter(num_replicas: int, requests: list[SimRequest]) -> list[Recorder]:
    """Least loaded, with every machine taken step by step to every arrival."""
    machines = [SETUP.machine(fast_forward=False) for _ in range(num_replicas)]
    for request in requests:
        for machine in machines:
            machine.advance(request.arrival_s)
        min(machines, key=lambda machine: machine.num_open).offer(request)
    return [machine.run() for machine in machines]


@pytest.mark.parametrize("rate", [2.0, 10.0, 60.0])
def test_least_loaded(rate: float) -> None:
    requests = make_requests(PEOPLE, rate, 120, max_model_len=512, seed=4)
    recorders = Fleet(SETUP, 4, Routing.LEAST_LOADED).run(requests)
    expected = by_the_letter(4, requests)
    assert [list(r.served) for r in recorders] == [list(r.served) for r in expected]
    assert figures_of(recorders) == figures_of(expected)


def test_round_robin() -> None:
    requests = make_requests(PEOPLE, 10.0, 10, max_model_len=512)
    recorders = Fleet(SETUP, 3, Routing.ROUND_ROBIN).run(requests)
    assert [list(r.served) for r in recorders] == [
        [f"r{i}" for i in range(first, 10, 3)] for first in range(3)
    ]


def test_equal_beginnings_go_to_one_machine_unless_it_is_full() -> None:
    people = Population(Lengths(10), Lengths(40), prefix_len=64, num_prefixes=2)
    seldom = make_requests(people, 0.1, 20, max_model_len=512, seed=1)
    recorders = Fleet(SETUP, 8, Routing.PREFIX_AWARE).run(seldom)
    assert sum(bool(r.served) for r in recorders) <= 2
    at_once = make_requests(people, 1e6, 80, max_model_len=512, seed=1)
    recorders = Fleet(SETUP, 8, Routing.PREFIX_AWARE).run(at_once)
    assert max(len(r.served) for r in recorders) <= OVERLOAD * 80 / 8 + STABLE_SPARE + 1
    assert sum(len(r.served) for r in recorders) == 80
