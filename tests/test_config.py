"""Settings that are wrong by themselves are refused when they are made."""

from collections.abc import Callable
from typing import Any

import pytest

from octavo.config import (
    Backend,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
    ServerConfig,
    SpeculationConfig,
    choice_of,
)
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ModelConfig, "dtype", "float16"),
        (ModelConfig, "max_model_len", 0),
        (CacheConfig, "block_size", 17),
        (ModelConfig, "quantization", "awq"),
        (CacheConfig, "kv_cache_dtype", "fp8_e5m2"),
        (CacheConfig, "num_blocks", 0),
        (CacheConfig, "kv_cache_memory_bytes", 0),
        (SchedulerConfig, "max_num_batched_tokens", 0),
        (SchedulerConfig, "max_num_seqs", 0),
        (SchedulerConfig, "max_num_queued_reqs", 0),
        (EngineConfig, "num_threads", 0),
        (EngineConfig, "max_logprobs", -2),
        (ServerConfig, "port", -1),
        (ServerConfig, "port", 65536),
        (ServerConfig, "shutdown_timeout_s", -1.0),
        (ServerConfig, "shutdown_timeout_s", float("nan")),
        (ServerConfig, "slow_client_timeout_s", 0.0),
        (ServerConfig, "max_body_bytes", 0),
        (ServerConfig, "max_prompts_per_request", 0),
    ],
)
def test_a_value_outside_its_limits_is_named(
    kind: Callable[..., object], name: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=rf"{name.removesuffix('_s')} must be .*; given: {value}"):
        kind(**{name: value})


def test_every_running_sequence_needs_a_token_a_step() -> None:
    assert SchedulerConfig(8, 8).max_num_seqs == 8
    with pytest.raises(ConfigError, match=r"max_num_batched_tokens \(8\) must be at least"):
        SchedulerConfig(8, 9)


def test_a_choice_is_the_member_with_its_value() -> None:
    assert choice_of(Backend, "backend", "reference") is Backend.REFERENCE
    with pytest.raises(ConfigError, match="backend must be one of native, reference; given: gpu"):
        choice_of(Backend, "backend", "gpu")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SpeculationConfig()),
        (
            {"num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 3},
            SpeculationConfig(5, 4, 3),
        ),
        ({"prompt_lookup_max": 5}, SpeculationConfig(7, 5, 5)),
        ({"prompt_lookup_min": 3}, SpeculationConfig(7, 3, 3)),
    ],
)
def test_vllms_speculative_config(options: dict[str, int], expected: SpeculationConfig) -> None:
    assert SpeculationConfig.of_vllm({"method": "ngram", **options}) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "eagle"}, "method must be \"ngram\"; given: 'eagle'"),
        ({"num_speculative_tokens": 5}, 'method must be "ngram"; given: None'),
        ({"method": "ngram", "model": "x"}, "model is not supported; given: 'x'"),
        ({"method": "ngram", "num_speculative_tokens": "5"}, "must be an integer; given: '5'"),
        ({"method": "ngram", "num_speculative_tokens": True}, "must be an integer; given: True"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "must be at least 1; given: 0"),
        (
            {"method": "ngram", "prompt_lookup_min": 4, "prompt_lookup_max": 2},
            "prompt_lookup_max must be at least 4; given: 2",
        ),
    ],
)
def test_a_speculative_config_that_is_not_here(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SpeculationConfig.of_vllm(options)
    assert message in str(raised.value)


def test_speculation_that_is_off_takes_no_settings() -> None:
    with pytest.raises(ConfigError, match="speculation is off"):
        EngineConfig(speculation=False, speculative_config=SpeculationConfig())
