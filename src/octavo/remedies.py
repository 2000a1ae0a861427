"""Settings near those that do not fit into memory, and that do fit: each one tried, none guessed."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from octavo.config import EngineConfig
from octavo.errors import ConfigError, MemoryShortageError
from octavo.machine import Machine
from octavo.resolve import GIB, ModelFacts, ResolvedConfig, resolve, resolve_dtypes, untold

MOST_REMEDIES = 3
SMALL_STEP = 512
"""Tokens in a step, where scratch memory is short."""
SHORT_CONTEXT = 2048

FactsOf = Callable[[EngineConfig], ModelFacts]
"""What settings depend on of a model; it depends on settings itself."""


def resolve_or_advise(config: EngineConfig, facts_of: FactsOf, machine: Machine) -> ResolvedConfig:
    """As `resolve`; a MemoryShortageError also has the memory ledger, and commands with settings that fit."""
    try:
        return resolve(config, facts_of(config), machine)
    except MemoryShortageError as error:
        ledger = needs(config, facts_of(config), machine)
        commands = remedies(config, facts_of, machine)
        advice = (
            f"What fits: {', or '.join(commands)}" if commands else "No setting near these fits."
        )
        raise MemoryShortageError(f"{error}. {ledger}. {advice}") from None


def needs(config: EngineConfig, facts: ModelFacts, machine: Machine) -> str:
    """One line of what there is and what is needed before the first page."""
    dtype, _ = resolve_dtypes(config, facts, untold)
    threads = config.num_threads or machine.num_threads
    return (
        f"Available {machine.memory_available / GIB:.2f} GiB of {machine.memory_total / GIB:.2f}; "
        f"weights ({dtype}) {facts.weight_bytes[dtype] / GIB:.2f} GiB, "
        f"scratch {facts.scratch_bytes(threads) / GIB:.2f} GiB"
    )


def remedies(config: EngineConfig, facts_of: FactsOf, machine: Machine) -> list[str]:
    """Commands with the fewest changes that fit, at most MOST_REMEDIES; the longest context that each allows."""
    found: list[str] = []
    for changed in nearby(config):
        fitting = _longest(changed, config.model.max_model_len, facts_of, machine)
        if fitting is not None and (command := serve_command(fitting, config)) not in found:
            found.append(command)
        if len(found) == MOST_REMEDIES:
            break
    return found


def serve_command(config: EngineConfig, given: EngineConfig | None = None) -> str:
    """`octavo serve` with the flags in which these settings differ from the defaults."""
    return " ".join(["octavo serve", (given or config).model.model, *changed_flags(config)])


def changed_flags(config: EngineConfig) -> list[str]:
    """The flags in which these settings differ from the defaults, each with its value."""
    usual = EngineConfig()
    flags = [
        ("--revision", config.model.revision, None),
        ("--dtype", config.model.dtype, usual.model.dtype),
        ("--quantization", config.model.quantization, None),
        ("--kv-cache-dtype", config.cache.kv_cache_dtype, usual.cache.kv_cache_dtype),
        ("--max-model-len", config.model.max_model_len, None),
        ("--block-size", config.cache.block_size, usual.cache.block_size),
        ("--num-blocks-override", config.cache.num_blocks, None),
        ("--kv-cache-memory-bytes", config.cache.kv_cache_memory_bytes, None),
        ("--max-num-seqs", config.scheduler.max_num_seqs, usual.scheduler.max_num_seqs),
        (
            "--max-num-batched-tokens",
            config.scheduler.max_num_batched_tokens,
            usual.scheduler.max_num_batched_tokens,
        ),
        ("--threads", config.num_threads, None),
    ]
    chosen = [f"{flag} {value}" for flag, value, default in flags if value != default]
    if not config.cache.prefix_caching:
        chosen.append("--no-enable-prefix-caching")
    return chosen


def nearby(config: EngineConfig) -> Iterator[EngineConfig]:
    """Changed settings, the smallest changes first. The pool and the context are left to what fits."""
    free_size = replace(
        config,
        model=replace(config.model, max_model_len=None),
        cache=replace(config.cache, num_blocks=None, kv_cache_memory_bytes=None),
    )
    small_cache = _with_cache(free_size, "int8")
    small_weights = replace(free_size, model=replace(free_size.model, dtype="auto"))
    yield free_size
    yield small_cache
    yield _with_small_steps(free_size)
    yield small_weights
    yield _with_cache(small_weights, "int8")
    yield _with_small_steps(_with_cache(small_weights, "int8"))


def _with_cache(config: EngineConfig, dtype: str) -> EngineConfig:
    return replace(config, cache=replace(config.cache, kv_cache_dtype=dtype))


def _with_small_steps(config: EngineConfig) -> EngineConfig:
    scheduler = config.scheduler
    tokens = min(SMALL_STEP, scheduler.max_num_batched_tokens)
    return replace(
        config,
        scheduler=replace(
            scheduler,
            max_num_batched_tokens=tokens,
            max_num_seqs=min(tokens, scheduler.max_num_seqs),
        ),
    )


def _longest(
    config: EngineConfig, wanted: int | None, facts_of: FactsOf, machine: Machine
) -> EngineConfig | None:
    """These settings with the longest context that they leave room for, up to `wanted`; None if they do not fit."""
    try:
        resolved = resolve(config, facts_of(config), machine, untold)
    except ConfigError:
        return None
    longest = min(wanted or resolved.max_model_len, resolved.max_model_len)
    return replace(config, model=replace(config.model, max_model_len=longest))
