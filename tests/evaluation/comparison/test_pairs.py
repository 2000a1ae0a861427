import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.evaluation.comparison.pairs import (
    PairRatio,
    drop_reason,
    is_turned,
    times_better,
    verdict,
    wants_more,
)
from octavo.evaluation.comparison.probes import Conditions, CpuTimes, Reading, Watch, cpu_times

QUIET = Conditions(Reading(50e9, 40.0), Reading(51e9, 41.0), steal=0.001, others=0.0)


def test_who_runs_first_alternates() -> None:
    assert [is_turned(attempt) for attempt in range(4)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("kept", "attempts", "wants"),
    [(0, 0, True), (3, 7, True), (4, 4, False), (3, 8, False), (0, 8, False)],
)
def test_dropped_pairs_are_run_again_for_a_while(kept: int, attempts: int, wants: bool) -> None:
    assert wants_more(kept, attempts, 4) is wants


def test_a_pair_on_one_machine_counts() -> None:
    assert drop_reason(QUIET, QUIET) is None
    slower = replace(QUIET, after=Reading(51e9 / 1.14, 40.0))
    assert drop_reason(QUIET, replace(slower, before=Reading(50e9, 45.0))) is None


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(QUIET, after=Reading(85e9, 41.0)), "read bandwidth changed by 70%"),
        (replace(QUIET, before=Reading(50e9, 250.0)), "barrier latency changed by 525%"),
        (replace(QUIET, steal=0.021), "2.1% of the CPU time was stolen"),
        (replace(QUIET, others=0.3), "other processes took 30% of the CPU time"),
    ],
)
def test_a_pair_on_two_machines_does_not(changed: Conditions, reason: str, is_first: bool) -> None:
    pair = (changed, QUIET) if is_first else (QUIET, changed)
    assert drop_reason(*pair) == reason


def test_better_is_above_one() -> None:
    assert times_better(30.0, 10.0, more_is_better=True) == 3.0
    assert times_better(30.0, 10.0, more_is_better=False) == pytest.approx(1 / 3)


def test_the_median_is_of_what_counts() -> None:
    pairs = [
        PairRatio(3.0, None),
        PairRatio(9.0, "steal"),
        PairRatio(2.0, None),
        PairRatio(2.2, None),
    ]
    found = verdict(pairs)
    assert (found.median, found.ratios, found.dropped) == (2.2, (3.0, 2.0, 2.2), ("steal",))
    assert verdict([PairRatio(9.0, "steal")]).median is None


def test_the_line_of_all_processors(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 1000 5 6 7 40 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    tick = os.sysconf("SC_CLK_TCK")
    found = cpu_times(stat)
    assert found.whole == pytest.approx(1208 / tick)
    assert found.worked == pytest.approx(150 / tick)
    assert found.stolen == pytest.approx(40 / tick)


def test_a_watch_tells_own_work_from_that_of_others() -> None:
    readings = iter((Reading(50e9, 40.0), Reading(49e9, 42.0)))
    times = iter((CpuTimes(100.0, 40.0, 1.0), CpuTimes(110.0, 46.0, 1.5)))
    watch = Watch(lambda: next(readings), lambda: next(times))
    found = watch.end()
    assert (found.before, found.after) == (Reading(50e9, 40.0), Reading(49e9, 42.0))
    assert found.steal == pytest.approx(0.05)
    assert 0.5 < found.others <= 0.6  # this test itself takes next to nothing


def test_the_work_of_children_is_not_that_of_others() -> None:
    reading = Reading(50e9, 40.0)
    busy = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"]
    times = iter((CpuTimes(0.0, 0.0, 0.0), CpuTimes(1.0, 0.5, 0.0)))
    watch = Watch(lambda: reading, lambda: next(times))
    subprocess.run(busy, check=True)
    assert watch.end().others < 0.05
