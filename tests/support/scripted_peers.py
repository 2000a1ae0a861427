"""Systems whose legs cost nothing: each answers with the next of the figures it was given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from octavo.evaluation.comparison.peers.peer import OUTPUT_RATE, Job, PeerError, Run, Setting
from octavo.evaluation.comparison.probes import Conditions, Reading
from octavo.progress import Progress

OFF = {"speculation": "off", "prefix_cache": "off"}
QUIET = Conditions(Reading(50e9, 40.0), Reading(50e9, 40.0), steal=0.0, others=0.0)
STOLEN = Conditions(Reading(50e9, 40.0), Reading(50e9, 40.0), steal=0.5, others=0.0)


@dataclass
class ScriptedPeer:
    """A peer of the name of a real one, whose rates by setting are known."""

    name: str
    rates: Mapping[str, float]
    """Output rate by the value of its only option."""
    num_pairs: int = 2
    first: int | None = None
    problem: str | None = None
    """Why it cannot be set up."""
    state: Mapping[str, str] = field(default_factory=lambda: OFF)
    ran: list[tuple[str, int]] = field(default_factory=list)
    """The option and the number of requests of each leg."""

    def set_up(self, progress: Progress) -> Mapping[str, str]:
        """Nothing to install."""
        if self.problem is not None:
            raise PeerError(self.problem)
        return {self.name: "1.0"}

    def settings(self, job: Job) -> Sequence[Setting]:
        """All that have a rate."""
        return [{"option": option} for option in self.rates]

    def run(self, job: Job, setting: Setting) -> Run:
        """At once."""
        self.ran.append((setting["option"], len(job.items)))
        rate = self.rates[setting["option"]]
        if rate == 0:
            raise PeerError(f"{self.name} fell over")
        return Run({OUTPUT_RATE: rate}, self.state, {})


class ScriptedWatch:
    """Conditions as they were written down; the machine is quiet afterwards."""

    def __init__(self, conditions: Iterator[Conditions]) -> None:
        self._conditions = conditions

    def end(self) -> Conditions:
        """The next ones."""
        return next(self._conditions, QUIET)
