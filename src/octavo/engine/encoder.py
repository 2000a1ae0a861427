"""The engine of an encoder: the same loop and scheduler; a runner without pages, over a pool that only counts."""

from pathlib import Path

from octavo.backends.encoder.runner import EncoderRunner
from octavo.config import Backend, CacheConfig, EngineConfig
from octavo.core.block_tables import BlockTables
from octavo.core.scheduler import Scheduler
from octavo.engine.loop import Engine
from octavo.engine.messages import LedgerLine, Ready
from octavo.errors import ConfigError
from octavo.machine import check_platform
from octavo.models.encoder import Encoder, load_encoder
from octavo.progress import Progress, silent

DTYPES = ("auto", "float32")


def build_encoder(
    config: EngineConfig, path: Path, *, progress: Progress = silent
) -> tuple[Engine, Ready]:
    """Load the encoder of a folder and build its engine. Raises PlatformError, ConfigError, CheckpointError."""
    check_platform()
    progress("reading weights", 0.0)
    encoder = load_encoder(path)
    spec, scheduler = encoder.spec, config.scheduler
    max_len = _checked_len(config, spec.max_len)
    block_size = config.cache.block_size
    blocks_each = -(-(max_len + 1) // block_size)
    runner = EncoderRunner(
        encoder, num_blocks=blocks_each * scheduler.max_num_seqs, block_size=block_size
    )
    engine = Engine(
        Scheduler(
            BlockTables(runner.num_blocks, block_size, b""),
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
            max_model_len=max_len
            + 1,  # the token that each request ends with is no part of its text
            policy=scheduler.policy,
            end_token_ids=frozenset(),
            prefix_caching=False,
        ),
        runner,
        vocab_size=spec.vocab_size,
        max_logprobs=0,
        max_num_queued_reqs=scheduler.max_num_queued_reqs,
    )
    return engine, _ready(config, encoder, runner, max_len)


def _ready(config: EngineConfig, encoder: Encoder, runner: EncoderRunner, max_len: int) -> Ready:
    spec, scheduler = encoder.spec, config.scheduler
    return Ready(
        model=encoder.name,
        architecture="bert",
        vocab_size=spec.vocab_size,
        max_model_len=max_len,
        num_blocks=runner.num_blocks,
        block_size=runner.block_size,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_logprobs=0,
        dtype="float32",
        kv_cache_dtype="none",
        speculation="off",
        isa="numpy",
        num_threads=1,
        prefix_caching=False,
        block_bytes=0,
        ledger=[LedgerLine("weights", encoder.num_bytes)],
        hidden_size=spec.hidden_size,
        is_encoder=True,
    )


def _checked_len(config: EngineConfig, longest: int) -> int:
    """The longest text. Raises ConfigError for settings that an encoder has not."""
    model, plain = config.model, CacheConfig()
    settings = {
        "dtype": model.dtype if model.dtype not in DTYPES else None,
        "quantization": model.quantization,
        "kv-cache-memory-bytes": config.cache.kv_cache_memory_bytes,
        "num-blocks-override": config.cache.num_blocks,
        "kv-cache-dtype": None
        if config.cache.kv_cache_dtype == plain.kv_cache_dtype
        else config.cache.kv_cache_dtype,
        "threads": config.num_threads,
        "speculative-config": config.speculative_config,
        "backend": config.backend.value if config.backend is not Backend.NATIVE else None,
    }
    for name, value in settings.items():
        if value is not None:
            raise ConfigError(
                f"an encoder is computed in float32 by numpy, without a cache: --{name} has no meaning; given: {value}"
            )
    wanted = longest if model.max_model_len is None else model.max_model_len
    if not 2 <= wanted <= longest:
        raise ConfigError(
            f"max_model_len must be from 2 to {longest} for this encoder; given: {wanted}"
        )
    return wanted
