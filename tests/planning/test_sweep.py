"""Capacities, targets and sweeps."""

from dataclasses import replace

import pytest

from octavo.errors import ConfigError
from octavo.planning.capacity import (
    PRECISION,
    MadeUpLoad,
    RecordedLoad,
    find_capacity,
    run_at,
    run_if_met,
)
from octavo.planning.recorder import Recorder
from octavo.planning.setups import Policy
from octavo.planning.sweep import Grid, run_sweep
from octavo.planning.targets import Goal, Target, parse_goal
from octavo.planning.workloads import Lengths, Population, make_requests
from support.planning import SETUP

LOAD = MadeUpLoad(Population(Lengths(40, 0.8), Lengths(30, 0.8)), 60.0, 512)
GOAL = parse_goal("ttft_p99<500ms,itl_p99<60ms")


def test_the_capacity_is_where_the_target_ends() -> None:
    capacity = find_capacity(SETUP, LOAD, GOAL)
    assert capacity.figures is not None and GOAL.is_met(capacity.figures)
    assert capacity.figures == run_at(SETUP, LOAD, capacity.rate)
    assert not GOAL.is_met(run_at(SETUP, LOAD, capacity.rate * (1 + 2 * PRECISION)))


@pytest.mark.parametrize("statistic", ["mean", "p50", "p90", "p99"])
@pytest.mark.parametrize("measure", ["ttft", "itl", "e2e", "normalized"])
def test_what_is_given_up_would_have_missed_the_goal(measure: str, statistic: str) -> None:
    """At rates and limits around what the machine can do; what is run to the end is the run itself."""
    people = replace(LOAD.people, turns=2, pause_s=0.5)
    for policy in (Policy.PAGED, Policy.ORACLE):
        setup, load = replace(SETUP, policy=policy), replace(LOAD, people=people, seconds=20.0)
        for rate in (2.0, 8.0, 32.0):
            figures = run_at(setup, load, rate)
            value = getattr(
                getattr(
                    figures, f"{measure}_s" if measure != "normalized" else "normalized_latency_s"
                ),
                statistic,
            )
            for factor in (0.2, 0.9, 1.0, 1.1, 5.0):
                goal = Goal((Target(measure, statistic, factor * value),))
                expected = figures if factor > 1 else None
                assert run_if_met(setup, load, rate, goal) == expected, (policy, rate, factor)


def test_what_cannot_be_met_is_given_up_early() -> None:
    steps = []

    class Counted(Goal):
        def is_lost(self, recorder: Recorder, now: float, num_requests: int) -> bool:
            steps.append(recorder.num_steps)
            return super().is_lost(recorder, now, num_requests)

    goal = Counted((Target("normalized", "mean", 0.5),))
    load = replace(LOAD, seconds=200.0)
    assert run_if_met(SETUP, load, 100.0, goal) is None
    assert steps[-1] < run_at(SETUP, load, 100.0).num_steps / 4


def test_no_rate_is_low_enough() -> None:
    assert (
        find_capacity(
            SETUP, replace(LOAD, seconds=200.0), Goal((Target("ttft", "mean", 0.0),))
        ).rate
        == 0.0
    )


def test_a_target_that_every_rate_meets() -> None:
    """The rate is then as high as the machine can use, not without an end."""
    people = LOAD.people
    traces = (
        replace(LOAD, seconds=10.0),
        RecordedLoad(tuple(make_requests(people, 1.0, 20, max_model_len=512))),
    )
    for load in traces:
        capacity = find_capacity(SETUP, load, Goal(()))
        assert capacity.figures is not None
        more = run_at(SETUP, load, 2 * capacity.rate)
        assert more.requests_per_s < capacity.figures.requests_per_s * (1 + PRECISION)


def test_a_sweep_has_the_cheapest_first() -> None:
    grid = Grid((8, 16), (16, 256), (2, 16))
    rows = run_sweep(SETUP, grid, LOAD, GOAL, num_processes=2)
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
        parse_goal(text)
