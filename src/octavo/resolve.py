"""Every `None` and `"auto"` of the settings becomes a value here, once; each choice is logged."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.config import (
    Backend,
    CacheConfig,
    EngineConfig,
    SchedulingPolicy,
    SpeculationConfig,
)
from octavo.errors import ConfigError, MemoryShortageError
from octavo.machine import Machine

logger = logging.getLogger(__name__)
untold = logging.Logger(f"{__name__}.untold", logging.CRITICAL)
"""For settings that are only tried: nobody wants to read of the choices."""

GIB = 1024**3
RESERVE_SHARE = 0.1
"""Share of the machine's memory that an automatic pool leaves to the front end and to others."""
MIN_RESERVE = GIB


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the settings depend on of a model, as plain numbers (from `models.footprint`)."""

    max_position_embeddings: int
    """Longest sequence, in tokens, that the model was made for."""
    block_bytes: Mapping[str, int]
    """Bytes of one block, for each kv_cache_dtype."""
    weight_bytes: Mapping[str, int]
    """Bytes of the weights in memory, for each dtype and quantization."""
    scratch_bytes: Callable[[int], int]
    """Bytes of scratch memory for a number of threads."""
    quantized_types: tuple[str, ...] = ()
    """Formats of the weights that the checkpoint holds quantized."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory ledger. Bytes."""

    available: int
    weights: int
    scratch: int
    pool: int
    reserve: int

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """The ledger as (name, bytes)."""
        return (
            ("available", self.available),
            ("weights", self.weights),
            ("scratch", self.scratch),
            ("kv cache", self.pool),
            ("reserve", self.reserve),
        )


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """Settings without a gap. Nothing writes them later."""

    backend: Backend
    dtype: str
    """auto | float32 | bfloat16 | int8 | int4: how weights are held. auto is a mode of its own: quantized weights
    stay quantized; int8 and int4 are what `quantization` asked for."""
    kv_cache_dtype: str
    """float32 | bfloat16 | int8 | fp8"""
    num_threads: int
    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_queued_reqs: int
    max_num_queued_tokens: int
    target_itl_s: float | None
    """None: no governor."""
    policy: SchedulingPolicy
    max_logprobs: int
    prefix_caching: bool
    named_prefix_share: float
    speculation: SpeculationConfig | None
    """None: off."""
    memory: MemoryPlan


def resolve(
    config: EngineConfig, facts: ModelFacts, machine: Machine, log: logging.Logger = logger
) -> ResolvedConfig:
    """Decide what the user left open, and tell `log`. Raises ConfigError for settings that this model or machine cannot hold."""
    dtype, kv_cache_dtype = resolve_dtypes(config, facts, log)
    num_threads = _resolve_threads(config.num_threads, machine, log)
    sequence_blocks = -(-facts.max_position_embeddings // config.cache.block_size)
    memory = _plan_memory(
        config.cache,
        most_blocks=config.scheduler.max_num_seqs * sequence_blocks,
        block_bytes=facts.block_bytes[kv_cache_dtype],
        weights=facts.weight_bytes[dtype],
        scratch=facts.scratch_bytes(num_threads),
        machine=machine,
        log=log,
    )
    num_blocks = memory.pool // facts.block_bytes[kv_cache_dtype]
    capacity = num_blocks * config.cache.block_size
    target_itl_ms = config.scheduler.target_itl_ms
    return ResolvedConfig(
        backend=config.backend,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=num_threads,
        block_size=config.cache.block_size,
        num_blocks=num_blocks,
        max_model_len=_resolve_model_len(
            config.model.max_model_len, facts.max_position_embeddings, capacity, log
        ),
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_queued_reqs=config.scheduler.max_num_queued_reqs,
        max_num_queued_tokens=config.scheduler.max_num_queued_tokens,
        target_itl_s=None if target_itl_ms is None else target_itl_ms / 1000,
        policy=config.scheduler.policy,
        max_logprobs=config.max_logprobs,
        prefix_caching=config.cache.prefix_caching,
        named_prefix_share=config.cache.named_prefix_share,
        speculation=_resolve_speculation(config, log),
        memory=memory,
    )


def resolve_dtypes(
    config: EngineConfig, facts: ModelFacts, log: logging.Logger = logger
) -> tuple[str, str]:
    """Formats of weights and cache. Raises ConfigError for what model or backend do not have."""
    dtype = "float32" if config.model.dtype == "float" else config.model.dtype
    kv_cache_dtype = config.cache.kv_cache_dtype
    if kv_cache_dtype == "fp8_e4m3":
        kv_cache_dtype = "fp8"
    if config.model.quantization is not None:
        dtype = _resolve_quantization(config.model.quantization, dtype, facts)
    if config.backend is Backend.REFERENCE:
        for name, value in (("dtype", dtype), ("kv_cache_dtype", kv_cache_dtype)):
            if value not in ("auto", "float32"):
                raise ConfigError(f"{name}: the reference backend has float32 only; given: {value}")
        dtype = kv_cache_dtype = "float32"
    elif kv_cache_dtype == "auto":
        kv_cache_dtype = "float32" if dtype == "float32" else "bfloat16"
    log.debug("dtype: %s (given: %s)", dtype, config.model.dtype)
    log.debug("kv_cache_dtype: %s (given: %s)", kv_cache_dtype, config.cache.kv_cache_dtype)
    return dtype, kv_cache_dtype


def _resolve_quantization(quantization: str, dtype: str, facts: ModelFacts) -> str:
    if dtype != "auto":
        raise ConfigError(
            "quantization and dtype both say how weights are held: give one; "
            f"given: {quantization} and {dtype}"
        )
    if facts.quantized_types:
        raise ConfigError(
            f"quantization {quantization} is made from F32, F16 or BF16 weights; "
            f"this checkpoint is quantized already: {', '.join(facts.quantized_types)}"
        )
    return quantization


def _resolve_speculation(config: EngineConfig, log: logging.Logger) -> SpeculationConfig | None:
    """On with the native backend, where a few tokens more make a step hardly longer."""
    enabled = config.speculation
    if enabled is None:
        enabled = config.backend is Backend.NATIVE or config.speculative_config is not None
    chosen = (config.speculative_config or SpeculationConfig()) if enabled else None
    log.debug("speculation: %s (given: %s)", chosen or "off", config.speculation)
    return chosen


def _resolve_threads(given: int | None, machine: Machine, log: logging.Logger) -> int:
    """A given number is lowered to the cores and the quota of this process: more would only wait for each other."""
    quota = machine.cpu_quota
    if given is None:
        chosen = machine.num_threads
    else:
        limit = machine.num_cores if quota is None else min(machine.num_cores, math.ceil(quota))
        chosen = min(given, limit)
    log.log(
        logging.DEBUG if given in (None, chosen) else logging.WARNING,
        "num_threads: %d (given: %s; %d CPUs, %d cores, CPU quota: %s)",
        chosen,
        given,
        machine.num_cpus,
        machine.num_cores,
        "none" if quota is None else f"{quota:.2f}",
    )
    return chosen


def _plan_memory(
    cache: CacheConfig,
    *,
    most_blocks: int,
    block_bytes: int,
    weights: int,
    scratch: int,
    machine: Machine,
    log: logging.Logger,
) -> MemoryPlan:
    """`most_blocks` is what the largest allowed batch of the longest sequences fills: no automatic pool is larger."""
    if cache.num_blocks is not None and cache.kv_cache_memory_bytes is not None:
        raise ConfigError(
            "num_blocks and kv_cache_memory_bytes both fix the size of the block pool: give one; "
            f"given: {cache.num_blocks} and {cache.kv_cache_memory_bytes}"
        )
    available = machine.memory_available
    reserve = min(max(MIN_RESERVE, int(machine.memory_total * RESERVE_SHARE)), available // 2)
    if cache.num_blocks is not None:
        reserve, num_blocks, source = 0, cache.num_blocks, "given"
    elif cache.kv_cache_memory_bytes is not None:
        reserve, num_blocks = 0, cache.kv_cache_memory_bytes // block_bytes
        source = f"kv_cache_memory_bytes {cache.kv_cache_memory_bytes}"
    else:
        num_blocks = min(most_blocks, (available - reserve - weights - scratch) // block_bytes)
        source = f"at most {most_blocks}; {_gib(available)} available less {_gib(reserve)} reserve"
    if num_blocks < 1:
        raise MemoryShortageError(
            f"the block pool cannot hold one block of {block_bytes} bytes: {source}, "
            f"weights {_gib(weights)}, scratch {_gib(scratch)}"
        )
    plan = MemoryPlan(available, weights, scratch, num_blocks * block_bytes, reserve)
    needed = weights + scratch + plan.pool
    if needed > machine.memory_total:
        raise MemoryShortageError(
            f"a pool of {num_blocks} blocks ({_gib(plan.pool)}) with weights {_gib(weights)} and scratch "
            f"{_gib(scratch)} is more than the memory of this machine ({_gib(machine.memory_total)})"
        )
    if needed > available:
        log.warning("%s will be needed, but %s are available now", _gib(needed), _gib(available))
    log.debug("num_blocks: %d, %s (%s)", num_blocks, _gib(plan.pool), source)
    return plan


def _resolve_model_len(
    given: int | None, model_limit: int, capacity: int, log: logging.Logger
) -> int:
    """The longest sequence: a given value must fit both limits, an automatic one is the lower of them."""
    if given is None:
        chosen = min(model_limit, capacity)
        level = logging.WARNING if chosen < model_limit else logging.DEBUG
        log.log(
            level,
            "max_model_len: %d (the model allows %d tokens, the block pool holds %d)",
            chosen,
            model_limit,
            capacity,
        )
        return chosen
    if given > model_limit:
        raise ConfigError(
            f"max_model_len must be at most {model_limit}, the longest sequence of this model; given: {given}"
        )
    if given > capacity:
        raise MemoryShortageError(
            f"max_model_len must be at most {capacity}, the tokens that the block pool can hold; given: {given}"
        )
    return given


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
