"""What the settings become, and which are refused."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from octavo.config import (
    Backend,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from octavo.errors import ConfigError
from octavo.machine import Machine
from octavo.resolve import ModelFacts, ResolvedConfig, resolve

GIB = 1024**3
MACHINE = Machine(
    cpu_model="Test CPU",
    num_cpus=8,
    num_cores=4,
    cpu_quota=None,
    memory_total=16 * GIB,
    memory_available=12 * GIB,
)
BLOCK = 1024**2
FACTS = ModelFacts(
    max_position_embeddings=4096,
    block_bytes={"float32": 2 * BLOCK, "bfloat16": BLOCK, "fp8": BLOCK // 2},
    weight_bytes={"auto": GIB, "float32": 4 * GIB, "bfloat16": 2 * GIB, "int8": 3 * GIB},
    scratch_bytes=lambda num_threads: num_threads * 1024**2,
)


def resolved(
    model: ModelConfig | None = None,
    cache: CacheConfig | None = None,
    *,
    machine: Machine = MACHINE,
    num_threads: int | None = None,
    backend: Backend = Backend.NATIVE,
    max_num_seqs: int = 256,
) -> ResolvedConfig:
    config = EngineConfig(
        model=model or ModelConfig(),
        cache=cache or CacheConfig(),
        scheduler=SchedulerConfig(max_num_seqs=max_num_seqs),
        num_threads=num_threads,
        backend=backend,
    )
    return resolve(config, FACTS, machine)


@pytest.mark.parametrize(
    ("dtype", "kv", "expected"),
    [
        ("auto", "auto", ("auto", "bfloat16")),
        ("float32", "auto", ("float32", "float32")),
        ("float", "auto", ("float32", "float32")),
        ("bfloat16", "auto", ("bfloat16", "bfloat16")),
        ("auto", "float32", ("auto", "float32")),
        ("auto", "fp8", ("auto", "fp8")),
        ("auto", "fp8_e4m3", ("auto", "fp8")),
        ("float32", "bfloat16", ("float32", "bfloat16")),
    ],
)
def test_dtypes(dtype: str, kv: str, expected: tuple[str, str]) -> None:
    result = resolved(ModelConfig(dtype=dtype), CacheConfig(kv_cache_dtype=kv, num_blocks=8))
    assert (result.dtype, result.kv_cache_dtype) == expected


def test_the_reference_backend_has_one_dtype() -> None:
    result = resolved(cache=CacheConfig(num_blocks=8), backend=Backend.REFERENCE)
    assert (result.dtype, result.kv_cache_dtype) == ("float32", "float32")
    with pytest.raises(ConfigError, match=r"reference.*float32.*bfloat16"):
        resolved(ModelConfig(dtype="bfloat16"), backend=Backend.REFERENCE)


def test_quantization_decides_how_weights_are_held() -> None:
    result = resolved(ModelConfig(quantization="int8"), CacheConfig(num_blocks=8))
    assert (result.dtype, result.kv_cache_dtype) == ("int8", "bfloat16")
    assert result.memory.weights == 3 * GIB


def test_quantization_is_refused_where_it_cannot_be_honoured() -> None:
    with pytest.raises(ConfigError, match=r"quantization and dtype .* given: int8 and bfloat16"):
        resolved(ModelConfig(quantization="int8", dtype="bfloat16"))
    with pytest.raises(ConfigError, match=r"reference.*float32.*int4"):
        resolved(ModelConfig(quantization="int4"), backend=Backend.REFERENCE)
    facts = replace(FACTS, quantized_types=("Q4_1", "Q8_0"))
    config = EngineConfig(model=ModelConfig(quantization="int8"))
    with pytest.raises(ConfigError, match=r"int8 is made from F32.*already: Q4_1, Q8_0"):
        resolve(config, facts, MACHINE)


def test_an_automatic_pool_takes_the_memory_that_is_left() -> None:
    memory = resolved().memory
    assert memory.reserve == int(1.6 * GIB)
    left = 12 * GIB - memory.reserve - GIB - 4 * 1024**2
    assert left - BLOCK < memory.pool <= left
    assert dict(memory.lines)["kv cache"] == memory.pool


def test_an_automatic_pool_is_no_larger_than_the_largest_batch_can_fill() -> None:
    result = resolved(max_num_seqs=2)
    assert result.num_blocks == 2 * 4096 // 16


def test_a_small_machine_keeps_half_of_what_is_available() -> None:
    machine = replace(MACHINE, memory_total=3 * GIB, memory_available=int(1.5 * GIB))
    facts = replace(FACTS, weight_bytes={"auto": 1024**2})
    result = resolve(EngineConfig(), facts, machine)
    assert result.memory.reserve == int(0.75 * GIB)


def test_given_blocks_and_bytes() -> None:
    assert resolved(cache=CacheConfig(num_blocks=77)).num_blocks == 77
    assert resolved(cache=CacheConfig(kv_cache_memory_bytes=5 * BLOCK + 1)).num_blocks == 5
    with pytest.raises(ConfigError, match="num_blocks and kv_cache_memory_bytes"):
        resolved(cache=CacheConfig(num_blocks=1, kv_cache_memory_bytes=BLOCK))


def test_a_pool_without_a_block_is_refused() -> None:
    with pytest.raises(ConfigError, match=str(BLOCK)):
        resolved(cache=CacheConfig(kv_cache_memory_bytes=BLOCK - 1))
    with pytest.raises(ConfigError, match=r"weights 4\.00 GiB"):
        resolved(ModelConfig(dtype="float32"), machine=replace(MACHINE, memory_available=4 * GIB))


def test_a_pool_beyond_the_machine_is_refused_and_one_beyond_now_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ConfigError, match=r"16\.00 GiB"):
        resolved(cache=CacheConfig(num_blocks=16 * 1024))
    with caplog.at_level(logging.WARNING, "octavo.resolve"):
        resolved(cache=CacheConfig(num_blocks=12 * 1024))
    assert "12.00 GiB are available now" in caplog.text


def test_automatic_model_len_is_the_lower_limit_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "octavo.resolve"):
        assert resolved(cache=CacheConfig(num_blocks=1000)).max_model_len == 4096
        assert not [r for r in caplog.records if r.levelno > logging.DEBUG]
        assert resolved(cache=CacheConfig(num_blocks=10)).max_model_len == 160
    warning = next(r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert "160" in warning and "4096" in warning


def test_a_given_model_len_that_cannot_be_held_is_refused_with_the_numbers() -> None:
    pool = CacheConfig(num_blocks=10)
    assert resolved(ModelConfig(max_model_len=160), pool).max_model_len == 160
    with pytest.raises(ConfigError, match=r"at most 160.*pool.*given: 161"):
        resolved(ModelConfig(max_model_len=161), pool)
    with pytest.raises(ConfigError, match=r"at most 4096.*model.*given: 4097"):
        resolved(ModelConfig(max_model_len=4097))


def test_threads(caplog: pytest.LogCaptureFixture) -> None:
    pool = CacheConfig(num_blocks=8)
    assert resolved(cache=pool).num_threads == 4
    assert resolved(cache=pool, num_threads=1).num_threads == 1
    assert resolved(cache=pool, machine=replace(MACHINE, cpu_quota=1.5)).num_threads == 2
    assert resolved(cache=pool, machine=replace(MACHINE, cpu_quota=0.1)).num_threads == 1
    with caplog.at_level(logging.WARNING, "octavo.resolve"):
        assert resolved(cache=pool, num_threads=6).num_threads == 4  # two share each core
        quota = replace(MACHINE, cpu_quota=1.5)
        assert resolved(cache=pool, machine=quota, num_threads=8).num_threads == 2
    assert sum("num_threads: " in record.getMessage() for record in caplog.records) == 2
    with pytest.raises(ConfigError, match="num_threads"):
        resolved(cache=pool, num_threads=0)


def test_every_choice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "octavo.resolve"):
        resolved()
    for name in ("dtype", "kv_cache_dtype", "num_threads", "num_blocks", "max_model_len"):
        assert f"{name}: " in caplog.text


def test_speculation_is_on_where_it_pays_and_where_it_is_asked_for() -> None:
    def speculation(**options: Any) -> SpeculationConfig | None:
        return resolve(EngineConfig(**options), FACTS, MACHINE).speculation

    own = SpeculationConfig(num_speculative_tokens=3)
    reference = {"backend": Backend.REFERENCE}
    assert speculation() == SpeculationConfig()
    assert speculation(speculation=False) is None
    assert speculation(speculative_config=own) == own
    assert speculation(**reference) is None
    assert speculation(**reference, speculation=True) == SpeculationConfig()
    assert speculation(**reference, speculative_config=own) == own
