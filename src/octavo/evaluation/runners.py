"""A runner by itself, without engine and scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from octavo.config import EngineConfig, SchedulerConfig
from octavo.engine.build import facts_of, make_runner
from octavo.evaluation.forced import CHUNK_TOKENS, LogitsRunner
from octavo.machine import inspect_machine
from octavo.models.model import Model
from octavo.progress import Progress, silent
from octavo.resolve import ResolvedConfig, resolve


@contextmanager
def opened_runner(
    config: EngineConfig,
    model: Model,
    num_blocks: int,
    progress: Progress = silent,
    *,
    max_tokens: int = CHUNK_TOKENS,
) -> Iterator[tuple[LogitsRunner, ResolvedConfig]]:
    """The runner of these settings over a pool of `num_blocks`, for plans of up to `max_tokens` tokens."""
    capacity = num_blocks * config.cache.block_size
    max_model_len = min(capacity, model.spec.max_position_embeddings)
    config = replace(
        config,
        model=replace(config.model, max_model_len=max_model_len),
        cache=replace(config.cache, num_blocks=num_blocks, kv_cache_memory_bytes=None),
        scheduler=SchedulerConfig(max_tokens, max_tokens),
    )
    resolved = resolve(config, facts_of(model, config), inspect_machine())
    # Every backend's runner gives logits too.
    runner = cast(LogitsRunner, make_runner(model, resolved, progress))
    try:
        yield runner, resolved
    finally:
        runner.close()
