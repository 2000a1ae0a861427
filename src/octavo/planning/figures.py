"""The figures of a simulation."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from octavo.planning.batching import Counts, MemoryUse
from octavo.planning.recorder import Recorder, Served

MILLION = 1e6
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of many values, in their own unit."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Where the KV memory was, as shares of all of it, averaged over the time in steps."""

    tokens: float
    reserved: float
    internal: float
    external: float
    free: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to. Times in seconds; latencies over the requests that ended."""

    num_requests: int
    num_ended: int
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    num_output_tokens: int
    num_computed_tokens: int
    """Prompt and answers, and what had to be computed again."""
    ttft_s: Spread | None
    itl_s: Spread | None
    normalized_latency_s: Spread | None
    """End-to-end latency divided by the length of the answer."""
    e2e_s: Spread | None
    mean_batch: float
    """Requests in a step, averaged over the time in steps."""
    memory: MemoryShares
    memory_saved: float
    """Share of the slots that sharing saves, of those that would be held without it."""
    cached_share: float
    """Share of the prompts' tokens that were found in the cache."""
    num_preemptions: int
    num_swaps: int
    """Preemptions by which pages were written to the swap space."""
    num_steps: int
    busy_share: float
    """Share of the time in which a step ran."""

    def cost_per_million_tokens(self, price_per_hour: float) -> float | None:
        """What a million generated tokens cost on a machine of this price; None if there are none."""
        if not self.num_output_tokens:
            return None
        hours = self.duration_s / SECONDS_PER_HOUR
        return price_per_hour * hours / self.num_output_tokens * MILLION


def figures_of(recorders: Sequence[Recorder]) -> Figures:
    """The figures of one machine, or of several that served one load together."""
    served = [s for recorder in recorders for s in recorder.served.values()]
    ended = [s for s in served if s.end_s is not None]
    duration = max((recorder.end_s for recorder in recorders), default=0.0)
    busy = sum(recorder.busy_s for recorder in recorders)
    num_tokens = sum(s.request.output_len * s.request.n for s in ended)
    memory = MemoryUse(*map(sum, zip(*(r.memory_seconds for r in recorders), strict=True)))
    counts = Counts(*map(sum, zip(*(r.counts for r in recorders), strict=True)))
    held = memory.tokens + memory.reserved + memory.internal + memory.external
    return Figures(
        num_requests=len(served),
        num_ended=len(ended),
        duration_s=duration,
        requests_per_s=_ratio(len(ended), duration),
        output_tokens_per_s=_ratio(num_tokens, duration),
        num_output_tokens=num_tokens,
        num_computed_tokens=sum(r.num_batched_tokens for r in recorders),
        ttft_s=spread(_first(s) - s.request.arrival_s for s in ended),
        itl_s=_pauses(recorders),
        normalized_latency_s=spread(_latency(s) / s.request.output_len for s in ended),
        e2e_s=spread(map(_latency, ended)),
        mean_batch=_ratio(sum(r.request_seconds for r in recorders), busy),
        memory=_shares(memory),
        memory_saved=_ratio(memory.saved, memory.saved + held),
        cached_share=_ratio(counts.num_cached_tokens, counts.num_prompt_tokens),
        num_preemptions=counts.num_preemptions,
        num_swaps=counts.num_swaps,
        num_steps=sum(r.num_steps for r in recorders),
        busy_share=_ratio(busy, duration * len(recorders)),
    )


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of these values; None if there are none."""
    known = list(values)
    return weighted_spread(known, [1] * len(known))


def weighted_spread(values: Sequence[float], counts: Sequence[int]) -> Spread | None:
    """The spread of values of which each came so often. A percentile is the least value that reaches it."""
    ordered = sorted(zip(values, counts, strict=True))
    below = list(accumulate(count for _, count in ordered))
    if not ordered or not below[-1]:
        return None
    total = math.fsum(value * count for value, count in ordered)

    def percentile(percent: float) -> float:
        wanted = percent / 100 * below[-1]
        low, high = 0, len(below) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if below[middle] >= wanted else (middle + 1, high)
        return ordered[low][0]

    return Spread(total / below[-1], percentile(50), percentile(90), percentile(99))


def _pauses(recorders: Sequence[Recorder]) -> Spread | None:
    values = [pause for recorder in recorders for pause in recorder.pauses]
    counts = [count for recorder in recorders for count in recorder.pause_counts]
    return weighted_spread(values, counts)


def _shares(memory: MemoryUse) -> MemoryShares:
    *parts, _ = memory
    total = sum(parts)
    return MemoryShares(*(_ratio(part, total) for part in parts))


def _first(served: Served) -> float:
    assert served.first_token_s is not None, f"{served.request.request_id} ended without a token"
    return served.first_token_s


def _latency(served: Served) -> float:
    assert served.end_s is not None, f"{served.request.request_id} has not ended"
    return served.end_s - served.request.arrival_s


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
