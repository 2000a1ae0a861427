"""When simulated figures are near enough to measured ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from octavo.evaluation.validate.trials import RANKED_SHARE, Run, Trial
from octavo.planning.figures import Figures, Spread

ALIKE = 0.1
"""Settings whose measured latencies differ by less than this share have no order."""
LIMITS: Mapping[str, float] = {
    "tokens_per_s": 0.10,
    "mean_batch": 0.10,
    "itl_s": 0.20,
    "ttft_s": 0.25,
}
"""How far a simulated figure may be from the measured one, as a share of it."""


@dataclass(frozen=True, slots=True)
class Medians:
    """Of several runs of a trial; times in seconds."""

    tokens_per_s: float
    mean_batch: float
    itl_s: float
    ttft_s: float
    latency_s: float
    """Per token, end to end: what settings are ranked by."""

    @classmethod
    def of(cls, runs: Sequence[Figures]) -> "Medians":
        """The median of each figure."""
        return cls(
            median(run.output_tokens_per_s for run in runs),
            median(run.mean_batch for run in runs),
            median(_known(run.itl_s).p50 for run in runs),
            median(_known(run.ttft_s).p50 for run in runs),
            median(_known(run.normalized_latency_s).mean for run in runs),
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of a trial."""

    figure: str
    measured: float
    simulated: float
    limit: float | None
    """Of the difference; None where only the order of settings counts."""

    @property
    def difference(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated / self.measured - 1

    @property
    def holds(self) -> bool:
        """Whether it is within its limit."""
        return self.limit is None or abs(self.difference) <= self.limit


@dataclass(frozen=True, slots=True)
class Comparison:
    """A trial, measured and simulated."""

    trial: Trial
    measured: Medians
    simulated: Medians
    num_runs: int

    @classmethod
    def of(cls, trial: Trial, runs: Sequence[Run]) -> "Comparison":
        """Of its runs, of which there is at least one."""
        return cls(
            trial,
            Medians.of([run.measured for run in runs]),
            Medians.of([run.simulated for run in runs]),
            len(runs),
        )

    @property
    def has_limits(self) -> bool:
        """Whether the figures themselves have to agree."""
        return self.trial.share < RANKED_SHARE

    def lines(self) -> list[Line]:
        """The figures that are compared."""
        return [
            Line(
                name,
                getattr(self.measured, name),
                getattr(self.simulated, name),
                limit if self.has_limits else None,
            )
            for name, limit in LIMITS.items()
        ]


@dataclass(frozen=True, slots=True)
class Repeated:
    """What was measured again, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Validated:
    """What has been found."""

    comparisons: Sequence[Comparison]
    fit_errors: Sequence[float]
    """(fitted - measured) / measured of every step that costs were fitted to."""
    wakes_s: Sequence[float]
    """What a first step takes besides, by each fit."""
    repeated: Sequence[Repeated] = ()
    missing: Sequence[Trial] = ()
    """Trials during which the machine never stayed as it was when its costs were measured."""

    def ranked(self, load: str) -> list[Comparison]:
        """The settings at RANKED_SHARE, the best measured latency first."""
        found = [c for c in self.comparisons if c.trial.load == load and not c.has_limits]
        return sorted(found, key=lambda c: c.measured.latency_s)

    def is_order_right(self, load: str) -> bool:
        """Whether the simulation has the settings in the same order, but for those that are alike."""
        return all(
            a.simulated.latency_s < b.simulated.latency_s
            for a, b in combinations(self.ranked(load), 2)
            if b.measured.latency_s > (1 + ALIKE) * a.measured.latency_s
        )

    @property
    def loads(self) -> list[str]:
        """In the order in which they were given."""
        return list(dict.fromkeys(c.trial.load for c in self.comparisons))

    @property
    def holds(self) -> bool:
        """Whether everything agrees as far as it has to, and nothing is missing."""
        near = all(line.holds for c in self.comparisons for line in c.lines())
        return near and not self.missing and all(map(self.is_order_right, self.loads))


def _known(spread: Spread | None) -> Spread:
    assert spread is not None, "a load has answers of several tokens"
    return spread
