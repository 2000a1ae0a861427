"""What a service has to keep to: limits on latencies, as in `ttft_p99<2s,itl_p99<60ms`."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.planning.figures import Figures, Spread
from octavo.planning.recorder import Recorder, Served

_TARGET = re.compile(r"(\w+)_(mean|p50|p90|p99)<([0-9.]+)(ms|s)")
_MEASURES: Mapping[str, Callable[[Figures], Spread | None]] = {
    "ttft": lambda figures: figures.ttft_s,
    "itl": lambda figures: figures.itl_s,
    "e2e": lambda figures: figures.e2e_s,
    "normalized": lambda figures: figures.normalized_latency_s,
}
_SO_FAR: Mapping[str, Callable[[Served, float], float]] = {
    "ttft": lambda served, now: _since(served, served.first_token_s, now),
    "e2e": lambda served, now: _since(served, served.end_s, now),
    "normalized": lambda served, now: _since(served, served.end_s, now) / served.request.output_len,
}
"""What a request's value is at least; of the measures that have one value a request."""


@dataclass(frozen=True, slots=True)
class Target:
    """One limit, in seconds."""

    measure: str
    statistic: str
    limit_s: float

    def is_met(self, figures: Figures) -> bool:
        """Whether a run kept to it. A measure without values (answers of one token have no pauses) is kept."""
        spread = _MEASURES[self.measure](figures)
        return spread is None or getattr(spread, self.statistic) < self.limit_s

    def is_lost(self, recorder: Recorder, now: float, num_requests: int) -> bool:
        """Whether a run to the end of so many requests misses it, whatever comes after `now`."""
        so_far = _SO_FAR.get(self.measure)
        if so_far is None:
            return False
        least = [so_far(served, now) for served in recorder.served.values()]
        if self.statistic == "mean":
            return math.fsum(least) >= self.limit_s * num_requests
        num_below = num_requests - sum(value >= self.limit_s for value in least)
        return num_below < float(self.statistic[1:]) / 100 * num_requests


@dataclass(frozen=True, slots=True)
class Goal:
    """All of these; none is always met. A value, so that it can go to another process."""

    targets: tuple[Target, ...]

    def is_met(self, figures: Figures) -> bool:
        """Whether a run kept to all."""
        return all(target.is_met(figures) for target in self.targets)

    def is_lost(self, recorder: Recorder, now: float, num_requests: int) -> bool:
        """Whether it misses one, whatever comes."""
        return any(target.is_lost(recorder, now, num_requests) for target in self.targets)


def parse_goal(text: str) -> Goal:
    """Read limits that are separated by commas. Raises ConfigError."""
    return Goal(tuple(_parse(part.strip()) for part in text.split(",")))


def _parse(text: str) -> Target:
    match = _TARGET.fullmatch(text)
    if match is None or match[1] not in _MEASURES or match[3].count(".") > 1:
        raise ConfigError(
            f"--target takes limits like ttft_p99<2s,itl_p99<60ms of {', '.join(_MEASURES)} and mean, p50, p90, "
            f"p99; given: {text}"
        )
    seconds = float(match[3]) / (1000 if match[4] == "ms" else 1)
    return Target(match[1], match[2], seconds)


def _since(served: Served, moment: float | None, now: float) -> float:
    """Seconds from the arrival to a moment, or to now if it is still to come."""
    return (now if moment is None else moment) - served.request.arrival_s
