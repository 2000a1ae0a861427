"""A runner by itself, without engine and scheduler."""

from collections.abc import Callable

from octavo.config import Backend, EngineConfig
from octavo.evaluation.forced import CHUNK_TOKENS, LogitsRunner
from octavo.machine import inspect_machine
from octavo.models.model import Model

Progress = Callable[[str, float], None]


def open_runner(
    config: EngineConfig,
    model: Model,
    *,
    dtype: str,
    num_blocks: int,
    progress: Progress | None = None,
) -> LogitsRunner:
    """A runner of the configured backend over a pool of `num_blocks`, its arithmetic in `dtype`."""
    block_size = config.cache.block_size
    if config.backend is Backend.REFERENCE:
        # Only the chosen backend is imported: the other's extension module may not even load here.
        from octavo.backends.reference.runner import ReferenceRunner

        return ReferenceRunner(
            model.spec, model.weights, num_blocks=num_blocks, block_size=block_size
        )
    from octavo.backends.native.runner import NativeRunner

    kv_cache_dtype = config.cache.kv_cache_dtype
    if kv_cache_dtype == "auto":
        kv_cache_dtype = "float32" if dtype == "float32" else "bfloat16"
    return NativeRunner(
        model.spec,
        model.weights,
        num_blocks=num_blocks,
        block_size=block_size,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        max_num_batched_tokens=CHUNK_TOKENS,
        num_threads=config.num_threads or inspect_machine().num_threads,
        progress=None if progress is None else lambda done: progress("packing weights", done),
    )
