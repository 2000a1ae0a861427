"""A line in the log every ten seconds in which there is something to say."""

import asyncio
import logging

from octavo.engine.client import EngineClient
from octavo.engine.messages import EngineStats

_LOGGER = logging.getLogger(__name__)

INTERVAL_S = 10.0


async def log_stats(client: EngineClient, model: str | None = None) -> None:
    """Log throughput and load until cancelled. `model`: named where there are several."""
    prefix = "" if model is None else f"model {model}: "
    before = client.stats
    while True:
        await asyncio.sleep(INTERVAL_S)
        now = client.stats
        if now.num_steps > before.num_steps or now.num_waiting:
            _LOGGER.info("%s%s", prefix, stats_line(before, now, INTERVAL_S))
        before = now


def stats_line(before: EngineStats, now: EngineStats, seconds: float) -> str:
    """Rates over the interval and the state at its end, worded as the field's log readers know it."""
    prompt = (now.num_prompt_tokens - before.num_prompt_tokens) / seconds
    generated = (now.num_generation_tokens - before.num_generation_tokens) / seconds
    queries = now.num_prefix_queries - before.num_prefix_queries
    hits = now.num_prefix_hits - before.num_prefix_hits
    usage = now.num_blocks_referenced / max(1, now.num_blocks_total)
    return (
        f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generated:.1f} tokens/s, Running: {now.num_running} reqs, "
        f"Waiting: {now.num_waiting} reqs, KV cache usage: {usage:.1%}, "
        f"Prefix cache hit rate: {hits / max(1, queries):.1%}"
    )
