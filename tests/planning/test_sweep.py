"""Capacities, targets and sweeps."""

from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planning.capacity import PRECISION, MadeUpLoad, RecordedLoad, find_capacity, run_at
from octavo.planning.figures import Figures
from octavo.planning.sweep import Grid, run_sweep
from octavo.planning.targets import parse_targets
from octavo.planning.workloads import Lengths, Population, make_requests
from support.planning import SETUP

LOAD = MadeUpLoad(Population(Lengths(40, 0.8), Lengths(30, 0.8)), 60.0, 512)
TARGETS = parse_targets("ttft_p99<500ms,itl_p99<60ms")


def meets(figures: Figures) -> bool:
    return all(target.is_met(figures) for target in TARGETS)


def test_the_capacity_is_where_the_target_ends() -> None:
    capacity = find_capacity(SETUP, LOAD, meets)
    assert capacity.figures is not None and meets(capacity.figures)
    assert capacity.figures == run_at(SETUP, LOAD, capacity.rate)
    assert not meets(run_at(SETUP, LOAD, capacity.rate * (1 + 2 * PRECISION)))


def test_no_rate_is_low_enough() -> None:
    assert find_capacity(SETUP, replace(LOAD, seconds=200.0), lambda _figures: False).rate == 0.0


def test_a_target_that_every_rate_meets() -> None:
    """The rate is then as high as the machine can use, not without an end."""
    people = LOAD.people
    traces = (
        replace(LOAD, seconds=10.0),
        RecordedLoad(tuple(make_requests(people, 1.0, 20, max_model_len=512))),
    )
    for load in traces:
        capacity = find_capacity(SETUP, load, lambda _figures: True)
        assert capacity.figures is not None
        more = run_at(SETUP, load, 2 * capacity.rate)
        assert more.requests_per_s < capacity.figures.requests_per_s * (1 + PRECISION)


def test_a_sweep_has_the_cheapest_first() -> None:
    grid = Grid((8, 16), (16, 256), (2, 16))
    rows = run_sweep(SETUP, grid, LOAD, TARGETS, num_processes=2)
    assert len(rows) == 8
    costs = [row.cost_per_million_tokens(3.6) for row in rows]
    known = [cost for cost in costs if cost is not None]
    assert known == sorted(known)
    assert costs[: len(known)] == known
    best = rows[0]
    assert best.setup.limits.max_num_seqs == 16
    assert known[0] == pytest.approx(3.6 / 3600 / best.tokens_per_s * 1e6)


def test_budgets_that_the_engine_refuses_are_left_out() -> None:
    assert [s.limits.max_num_seqs for s in Grid((16,), (32,), (8, 64)).setups(SETUP)] == [8]


@pytest.mark.parametrize(
    "text", ["", "ttft<2s", "ttft_p98<2s", "tttf_p99<2s", "ttft_p99<2", "ttft_p99<1.2.3s"]
)
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--target takes limits"):
        parse_targets(text)
