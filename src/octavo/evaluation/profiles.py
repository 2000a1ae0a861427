"""Where a runner's time goes, op by op."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from octavo.core.step import Runner, StepPlan
from octavo.evaluation.percentiles import median


class ProfiledRunner(Runner, Protocol):
    """A runner that can say where its time goes."""

    def set_profiling(self, on: bool) -> None:
        """Start counting anew, or stop."""
        ...

    def profile(self) -> Mapping[str, float]:
        """Seconds by op since profiling was last turned on."""
        ...


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds of one step, or of several together."""

    op_seconds: Mapping[str, float]
    whole_s: float
    """All of it, also what no op accounts for."""


def profile_median(runner: ProfiledRunner, plans: Iterable[StepPlan]) -> dict[str, float]:
    """Run steps that are alike; the median seconds of each op by itself. They need not add up to a step."""
    found = [profile_total(runner, [plan]).op_seconds for plan in plans]
    return {op: median([step[op] for step in found]) for op in found[0]}


def profile_typical(runner: ProfiledRunner, plans: Iterable[StepPlan]) -> Profile:
    """Run steps that are alike; the mean of those in the middle half by their time, so that the ops add up."""
    found = sorted((profile_total(runner, [plan]) for plan in plans), key=lambda p: p.whole_s)
    aside = len(found) // 4
    middle = found[aside : len(found) - aside]
    return Profile(
        {op: fmean(step.op_seconds[op] for step in middle) for op in middle[0].op_seconds},
        fmean(step.whole_s for step in middle),
    )


def profile_total(runner: ProfiledRunner, plans: Iterable[StepPlan]) -> Profile:
    """Run steps; the sum of all."""
    runner.set_profiling(True)
    start = time.perf_counter()
    for plan in plans:
        runner.run(plan)
    whole_s = time.perf_counter() - start
    op_seconds = dict(runner.profile())
    runner.set_profiling(False)
    return Profile(op_seconds, whole_s)
