"""Figures of a simulation for people, and for programs."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.planning.figures import Figures, Spread
    from octavo.planning.setups import MachineSetup

MS = 1000.0


def report(figures: "Figures", price: float | None) -> dict[str, Any]:
    """As JSON."""
    cost = None if price is None else figures.cost_per_million_tokens(price)
    return {**asdict(figures), "cost_per_million_tokens": cost}


def table(figures: "Figures", price: float | None) -> dict[str, Any]:
    """As names and values."""
    memory = figures.memory
    rows: dict[str, Any] = {
        "requests": f"{figures.num_ended:,} of {figures.num_requests:,} ended in {figures.duration_s:,.1f} s",
        "requests/s": figures.requests_per_s,
        "output tokens/s": figures.output_tokens_per_s,
        "time to first token": _spread(figures.ttft_s),
        "between tokens": _spread(figures.itl_s),
        "latency per token": _spread(figures.normalized_latency_s),
        "requests in a step": figures.mean_batch,
        "memory: tokens": f"{memory.tokens:.1%}",
        "memory: reserved": f"{memory.reserved:.1%}",
        "memory: internal waste": f"{memory.internal:.1%}",
        "memory: external waste": f"{memory.external:.1%}",
        "memory: free": f"{memory.free:.1%}",
        "saved by sharing": f"{figures.memory_saved:.1%}",
        "prompts found in the cache": f"{figures.cached_share:.1%}",
        "preemptions": figures.num_preemptions,
        "swapped out": figures.num_swaps,
        "steps": f"{figures.num_steps:,}",
        "busy": f"{figures.busy_share:.1%}",
    }
    if price is not None:
        rows["cost of a million tokens"] = figures.cost_per_million_tokens(price)
    return rows


def setup_state(setup: "MachineSetup") -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "model": setup.model.name,
        "policy": setup.policy.value,
        "costs": type(setup.costs).__name__.lower(),
        "num_slots": setup.num_slots,
        "block_size": setup.block_size,
        "prefix_caching": setup.prefix_caching,
        "swap_space": 0 if setup.swap is None else setup.swap.num_bytes,
        "max_model_len": setup.max_model_len,
        "max_num_seqs": setup.limits.max_num_seqs,
        "max_num_batched_tokens": setup.limits.max_num_batched_tokens,
    }


def ms(spread: "Spread | None", statistic: str) -> float | None:
    """One statistic in milliseconds."""
    if spread is None:
        return None
    value: float = getattr(spread, statistic)
    return value * MS


def _spread(spread: "Spread | None") -> str:
    if spread is None:
        return "-"
    values = (spread.mean, spread.p50, spread.p90, spread.p99)
    mean, p50, p90, p99 = (f"{value * MS:,.1f}" for value in values)
    return f"mean {mean} ms, median {p50}, p90 {p90}, p99 {p99}"
