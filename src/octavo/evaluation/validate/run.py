"""Simulated against measured: the same loads on the engine of this machine and in the simulator, within the hour.

What steps cost is fitted to made-up requests, which are measured before the loads and again whenever the machine has
become another meanwhile: a run and the costs that it is simulated with belong to one state of the machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from octavo.config import EngineConfig
from octavo.evaluation.comparison.pairs import drop_reason
from octavo.evaluation.comparison.probes import Watch
from octavo.evaluation.step_profile import WatchedEngine
from octavo.evaluation.validate.stand import Profile, Stand
from octavo.evaluation.validate.trials import Run, Trial, trials_of
from octavo.evaluation.validate.verdict import Comparison, Repeated, Validated
from octavo.planning.requests import SimRequest
from octavo.planning.traces import at_rate
from octavo.progress import Progress, silent

ATTEMPTS = 2
"""Of each run, and of each profile: what is disturbed is measured again."""


@dataclass(slots=True)
class Validation:
    """The measurements, in order."""

    config: EngineConfig
    loads: Mapping[str, Sequence[SimRequest]]
    """By name; arrivals are drawn anew."""
    repeats: int
    profile_s: float
    """Seconds of a profile; there is at least one a repeat."""
    watch: Callable[[], Watch]
    """Begins to look at the machine."""
    progress: Progress = silent
    announce: Callable[[float], None] = lambda _seconds: None
    """Told how long it is going to take if nothing disturbs it, as soon as that is known."""
    _profiles: list[Profile] = field(default_factory=list)
    _runs: dict[Trial, list[Run]] = field(default_factory=dict)
    _seconds: dict[Trial, float] = field(default_factory=dict)
    """How long a run takes."""
    _seconds_done: float = 0.0
    _repeated: list[Repeated] = field(default_factory=list)

    def run(self) -> Validated:
        """Measure, and simulate what was measured."""
        for repeat in range(self.repeats):
            with WatchedEngine(self.config) as watched:
                stand = Stand(watched, self.watch)
                self._profile(stand, seed=repeat)
                if repeat == 0:
                    self._plan(stand, watched.ready.max_num_seqs)
                self._measure(stand, watched.ready.max_num_seqs, seed=repeat)
                own = watched.ready.max_num_seqs
            for seats in sorted({trial.max_num_seqs for trial in self._runs} - {own}):
                with WatchedEngine(_with_seats(self.config, seats)) as watched:
                    self._measure(Stand(watched, self.watch), seats, seed=repeat)
        return Validated(
            [Comparison.of(trial, runs) for trial, runs in self._runs.items() if runs],
            [error for profile in self._profiles for error in profile.errors],
            [profile.costs.wake_s for profile in self._profiles],
            self._repeated,
            [trial for trial, runs in self._runs.items() if not runs],
        )

    def _profile(self, stand: Stand, seed: int) -> None:
        """What steps cost now."""
        for attempt in range(ATTEMPTS):
            profile = stand.profile(self.profile_s, seed)
            reason = drop_reason(profile.conditions, profile.conditions)
            if reason is None or attempt == ATTEMPTS - 1:
                break
            self._repeated.append(Repeated("costs of steps", reason))
        self._profiles.append(profile)
        self._tell(self.profile_s)

    def _plan(self, stand: Stand, max_num_seqs: int) -> None:
        """The capacities, the trials that follow from them, and how long these take."""
        costs = self._profiles[-1].costs
        for name, requests in self.loads.items():
            figures, _ = stand.measure([replace(request, arrival_s=0.0) for request in requests])
            for trial in trials_of(name, figures.requests_per_s, max_num_seqs):
                self._runs[trial] = []
                simulated = stand.simulate(self._requests(trial), costs, trial.max_num_seqs)
                self._seconds[trial] = simulated.duration_s
        self.announce(self._seconds_in_all)

    def _measure(self, stand: Stand, max_num_seqs: int, seed: int) -> None:
        """All trials under this limit, which is the engine's."""
        for trial in self._runs:
            if trial.max_num_seqs == max_num_seqs:
                self._try(stand, trial, seed)
                self._tell(self._seconds[trial])

    def _try(self, stand: Stand, trial: Trial, seed: int) -> None:
        """One run, under the conditions under which the costs were measured; else the costs are measured again."""
        requests = self._requests(trial)
        for _ in range(ATTEMPTS):
            profile = self._profiles[-1]
            measured, conditions = stand.measure(requests)
            reason = drop_reason(profile.conditions, conditions)
            if reason is None:
                simulated = stand.simulate(requests, profile.costs)
                self._runs[trial].append(Run(measured, simulated))
                return
            self._repeated.append(Repeated(str(trial), reason))
            self._profile(stand, seed)

    def _requests(self, trial: Trial) -> list[SimRequest]:
        return at_rate(self.loads[trial.load], trial.rate)

    @property
    def _seconds_in_all(self) -> float:
        return self.repeats * (self.profile_s + sum(self._seconds.values()))

    def _tell(self, seconds: float) -> None:
        self._seconds_done += seconds
        if self._seconds:
            self.progress("measuring", min(1.0, self._seconds_done / self._seconds_in_all))


def _with_seats(config: EngineConfig, max_num_seqs: int) -> EngineConfig:
    return replace(config, scheduler=replace(config.scheduler, max_num_seqs=max_num_seqs))
