"""What a service has to keep to: limits on latencies, as in `ttft_p99<2s,itl_p99<60ms`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.planning.figures import Figures, Spread

_TARGET = re.compile(r"(\w+)_(mean|p50|p90|p99)<([0-9.]+)(ms|s)")
_MEASURES: Mapping[str, Callable[[Figures], Spread | None]] = {
    "ttft": lambda figures: figures.ttft_s,
    "itl": lambda figures: figures.itl_s,
    "e2e": lambda figures: figures.e2e_s,
    "normalized": lambda figures: figures.normalized_latency_s,
}


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


def parse_targets(text: str) -> tuple[Target, ...]:
    """Read limits that are separated by commas. Raises ConfigError."""
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(text: str) -> Target:
    match = _TARGET.fullmatch(text)
    if match is None or match[1] not in _MEASURES or match[3].count(".") > 1:
        raise ConfigError(
            f"--target takes limits like ttft_p99<2s,itl_p99<60ms of {', '.join(_MEASURES)} and mean, p50, p90, "
            f"p99; given: {text}"
        )
    seconds = float(match[3]) / (1000 if match[4] == "ms" else 1)
    return Target(match[1], match[2], seconds)
