"""Summaries of measured values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """What many values came to, in their own unit."""

    mean: float
    p50: float
    p90: float
    p99: float
    min: float
    max: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the ascending values lie, interpolated linearly between neighbours."""
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = math.ceil(position)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return percentile(sorted(values), 50)


def summarize(values: Sequence[float], scale: float = 1.0) -> Summary | None:
    """The summary of the values times `scale`; None where there are none."""
    if not values:
        return None
    ordered = sorted(value * scale for value in values)
    return Summary(
        mean=math.fsum(ordered) / len(ordered),
        p50=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p99=percentile(ordered, 99),
        min=ordered[0],
        max=ordered[-1],
    )
