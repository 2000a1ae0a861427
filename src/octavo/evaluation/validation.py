"""Simulated against measured: the same loads on the engine of this machine and in the simulator, within the hour.

What steps cost is fitted to made-up requests, which are measured anew before each round of the loads: what happens to
the machine meanwhile is in both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median

from octavo.config import EngineConfig, SchedulerConfig
from octavo.engine.messages import Ready
from octavo.evaluation.replay import replay
from octavo.evaluation.step_profile import WatchedEngine, profile_steps, profile_wakes
from octavo.planning.costs import Fitted
from octavo.planning.figures import Figures, Spread, figures_of
from octavo.planning.fitting import Step, fit_costs
from octavo.planning.paged import PagedBatcher
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.simulator import SimulatedMachine
from octavo.planning.traces import at_rate
from octavo.planning.work import AttentionSpan
from octavo.progress import Progress, silent

SHARES = (0.3, 0.6, 0.85)
"""Of the rate at which a load is done when all its requests come at once."""
RANKED_SHARE = 0.85
"""Near the capacity a small error becomes a long queue: there the order of settings has to be right, no figure."""
RANKED_SEATS = (2, 4)
"""Smaller --max-num-seqs, so small that they matter, that are compared there with the engine's own."""
ALIKE = 0.1
"""Settings whose measured latencies differ by less than this share have no order."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One load at one rate under one limit."""

    load: str
    share: float
    rate: float
    """Requests per second."""
    max_num_seqs: int


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
class Comparison:
    """A trial, measured and simulated."""

    trial: Trial
    measured: Medians
    simulated: Medians

    def differences(self) -> dict[str, float]:
        """(simulated - measured) / measured, of the figures that have a limit."""
        return {
            name: getattr(self.simulated, name) / getattr(self.measured, name) - 1
            for name in LIMITS
        }

    @property
    def has_limits(self) -> bool:
        """Whether the figures themselves have to agree."""
        return self.trial.share < RANKED_SHARE

    @property
    def is_near(self) -> bool:
        """Whether all figures are within their limits."""
        return all(abs(d) <= LIMITS[name] for name, d in self.differences().items())


LIMITS: Mapping[str, float] = {
    "tokens_per_s": 0.10,
    "mean_batch": 0.10,
    "itl_s": 0.20,
    "ttft_s": 0.25,
}
"""How far a simulated figure may be from the measured one, as a share of it."""


@dataclass(frozen=True, slots=True)
class Validated:
    """What has been found."""

    costs: Fitted
    steps: Sequence[Step]
    """What the costs were fitted to."""
    comparisons: Sequence[Comparison]

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
        """Whether everything agrees as far as it has to."""
        near = all(c.is_near for c in self.comparisons if c.has_limits)
        return near and all(map(self.is_order_right, self.loads))


@dataclass(slots=True)
class Validation:
    """The measurements, in order; `run` takes about twice the time of the loads' arrivals, times `repeats`."""

    config: EngineConfig
    loads: Mapping[str, Sequence[SimRequest]]
    """By name; arrivals are drawn anew."""
    repeats: int
    profile_s: float
    """Seconds of each profile; there is one a repeat."""
    progress: Progress = silent
    announce: Callable[[float], None] = lambda _seconds: None
    """Told how long it is going to take, as soon as that is known."""
    _steps: list[Step] = field(default_factory=list)
    _wakes: list[Step] = field(default_factory=list)
    _runs: dict[Trial, list[Figures]] = field(default_factory=dict)
    _seconds_done: float = 0.0
    _seconds_in_all: float = 0.0

    def run(self) -> Validated:
        """Measure, then simulate."""
        for repeat in range(self.repeats):
            with WatchedEngine(self.config) as watched:
                self._profile(watched, seed=repeat)
                if repeat == 0:
                    ready, span = watched.ready, watched.span
                    self._plan(watched)
                self._measure(watched)
            for seats in RANKED_SEATS:
                with WatchedEngine(_with_seats(self.config, seats)) as watched:
                    self._measure(watched)
        costs = fit_costs(self._steps, self._wakes)
        comparisons = []
        for trial, runs in self._runs.items():
            simulated = self._simulate(trial, costs, ready, span)
            comparisons.append(Comparison(trial, Medians.of(runs), Medians.of([simulated])))
        return Validated(costs, self._steps, comparisons)

    def _profile(self, watched: WatchedEngine, seed: int) -> None:
        ready = watched.ready
        self._steps += profile_steps(
            watched.engine, watched.keeper, watched.span, vocab_size=ready.vocab_size,
            max_model_len=ready.max_model_len, max_num_seqs=ready.max_num_seqs, seconds=self.profile_s, seed=seed,
        )  # fmt: skip
        self._wakes += profile_wakes(
            watched.engine, watched.keeper, watched.span, vocab_size=ready.vocab_size, seed=seed
        )
        self._tell(self.profile_s)

    def _plan(self, watched: WatchedEngine) -> None:
        """The capacities, and the trials that follow from them."""
        seconds = 0.0
        for name, requests in self.loads.items():
            at_once = [replace(request, arrival_s=0.0) for request in requests]
            figures = self._replay(watched, at_once)
            for share in SHARES:
                rate = share * figures.requests_per_s
                seats = [watched.ready.max_num_seqs]
                seats += [s for s in RANKED_SEATS if share == RANKED_SHARE and s < seats[0]]
                for max_num_seqs in seats:
                    self._runs[Trial(name, share, rate, max_num_seqs)] = []
                    seconds += len(requests) / rate
        self._seconds_in_all = self.repeats * (seconds + self.profile_s)
        self.announce(self._seconds_in_all)

    def _measure(self, watched: WatchedEngine) -> None:
        """All trials of this engine's limit."""
        for trial, runs in self._runs.items():
            if trial.max_num_seqs == watched.ready.max_num_seqs:
                runs.append(self._replay(watched, self._requests(trial)))
                self._tell(len(self.loads[trial.load]) / trial.rate)

    def _replay(self, watched: WatchedEngine, requests: Sequence[SimRequest]) -> Figures:
        vocab_size = watched.ready.vocab_size
        known = [request.in_vocabulary(vocab_size) for request in requests]
        return figures_of([replay(watched.engine, watched.keeper, watched.span, known)])

    def _requests(self, trial: Trial) -> list[SimRequest]:
        return at_rate(self.loads[trial.load], trial.rate)

    def _simulate(self, trial: Trial, costs: Fitted, ready: Ready, span: AttentionSpan) -> Figures:
        batcher = PagedBatcher(
            span,
            num_blocks=ready.num_blocks,
            block_size=ready.block_size,
            max_model_len=ready.max_model_len,
            limits=SchedulerConfig(ready.max_num_batched_tokens, trial.max_num_seqs),
        )
        machine = SimulatedMachine(batcher, costs, Recorder())
        for request in self._requests(trial):
            machine.offer(request)
        return figures_of([machine.run()])

    def _tell(self, seconds: float) -> None:
        self._seconds_done += seconds
        if self._seconds_in_all:
            self.progress("measuring", min(1.0, self._seconds_done / self._seconds_in_all))


def _with_seats(config: EngineConfig, max_num_seqs: int) -> EngineConfig:
    return replace(config, scheduler=replace(config.scheduler, max_num_seqs=max_num_seqs))


def _known(spread: Spread | None) -> Spread:
    assert spread is not None, "a load has answers of several tokens"
    return spread
