from dataclasses import fields
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from octavo.cli.app import app
from octavo.cli.flags import FLAGS, Group, Settings, default_of, takes_flags
from octavo.config import (
    Backend,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
    SchedulingPolicy,
    ServerConfig,
    SpeculationConfig,
)
from octavo.core.sampling_params import SamplingParams
from octavo.errors import ConfigError, InvalidParameterError


def parse(*arguments: str) -> Settings:
    """The settings that a command with every flag receives."""
    received: list[Settings] = []
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    @takes_flags(*Group)
    def command(*, settings: Settings) -> None:
        received.append(settings)

    result = CliRunner().invoke(app, list(arguments))
    if result.exit_code:
        raise ValueError(result.output)
    return received[0]


def test_without_flags_the_settings_are_those_of_the_classes() -> None:
    settings = parse()
    assert settings.engine("m") == EngineConfig(model=ModelConfig(model="m"))
    assert settings.server() == ServerConfig()
    assert settings.sampling({}) == SamplingParams()


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        (("--max-num-seqs", "64"), EngineConfig(scheduler=SchedulerConfig(max_num_seqs=64))),
        (("--max-num-seqs=1k",), EngineConfig(scheduler=SchedulerConfig(max_num_seqs=1000))),
        (
            ("--max-num-batched-tokens", "25.6k"),
            EngineConfig(scheduler=SchedulerConfig(max_num_batched_tokens=25_600)),
        ),
        (("--no-speculation",), EngineConfig(speculation=False)),
        (("--speculation",), EngineConfig(speculation=True)),
        (
            ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5}'),
            EngineConfig(speculative_config=SpeculationConfig(num_speculative_tokens=5)),
        ),
        (("--max-model-len", "4K"), EngineConfig(model=ModelConfig(max_model_len=4096))),
        (("--max-model-len", "auto"), EngineConfig()),
        (("--max-model-len", "-1"), EngineConfig()),
        (("--block-size", "32"), EngineConfig(cache=CacheConfig(block_size=32))),
        (("--num-gpu-blocks-override", "9"), EngineConfig(cache=CacheConfig(num_blocks=9))),
        (("--swap-space", "4"), EngineConfig(cache=CacheConfig(swap_space=4 << 30))),
        (("--swap-space", "0.5"), EngineConfig(cache=CacheConfig(swap_space=1 << 29))),
        (("--swap-space", "512M"), EngineConfig(cache=CacheConfig(swap_space=1 << 29))),
        (("--kv-cache-dir", "kv"), EngineConfig(cache=CacheConfig(kv_cache_dir="kv"))),
        (
            ("--kv-cache-dir", "kv", "--kv-cache-dir-size", "20G"),
            EngineConfig(cache=CacheConfig(kv_cache_dir="kv", kv_cache_dir_size=20 << 30)),
        ),
        (("--num-blocks-override", "9"), EngineConfig(cache=CacheConfig(num_blocks=9))),
        (
            ("--kv-cache-memory-bytes", "2G"),
            EngineConfig(cache=CacheConfig(kv_cache_memory_bytes=2 << 30)),
        ),
        (
            ("--scheduling-policy", "priority"),
            EngineConfig(scheduler=SchedulerConfig(policy=SchedulingPolicy.PRIORITY)),
        ),
        (("--backend", "reference"), EngineConfig(backend=Backend.REFERENCE)),
        (("--max-logprobs", "-1"), EngineConfig(max_logprobs=-1)),
        (("--threads", "3", "--seed", "-5"), EngineConfig(num_threads=3, seed=-5)),
        (
            ("--dtype", "float32", "--revision", "v1", "--tokenizer", "t"),
            EngineConfig(model=ModelConfig(dtype="float32", revision="v1", tokenizer="t")),
        ),
    ],
)
def test_flags_set_the_engine(arguments: tuple[str, ...], config: EngineConfig) -> None:
    assert parse(*arguments).engine(ModelConfig().model) == config


def test_flags_set_the_server() -> None:
    settings = parse(
        *("--host", "0.0.0.0", "--port", "0", "--strict-requests", "--chat-template", "{{ x }}"),
        *("--served-model-name", "a", "--served-model-name", "b", "--shutdown-timeout", "1.5"),
    )
    assert settings.server() == ServerConfig(
        host="0.0.0.0",
        port=0,
        strict_requests=True,
        chat_template="{{ x }}",
        served_model_names=("a", "b"),
        shutdown_timeout_s=1.5,
    )
    assert not parse("--no-strict-requests").server().strict_requests


def test_a_conversation_without_a_temperature_is_a_calm_one() -> None:
    calm = {"temperature": 0.2, "top_p": 0.9}
    assert parse().chat_defaults({}) == calm
    assert parse("--top-k", "5").chat_defaults({"top_p": 0.5}) == {**calm, "top_p": 0.5}
    assert parse("--temperature", "1").chat_defaults({"top_p": 0.5}) == {"top_p": 0.5}
    assert parse().chat_defaults({"temperature": 0.7}) == {"temperature": 0.7}


def test_underscores_are_dashes() -> None:
    plain, same = (
        CliRunner().invoke(app, ["pull", "--accept_license", flag, "v1", "smollm2"])
        for flag in ("--revision", "--re_vision")
    )
    assert isinstance(plain.exception, ConfigError)
    assert "No such option: --re-vision" in same.output


def test_sampling_flags_win_over_defaults_and_only_if_given() -> None:
    settings = parse("--temperature", "0.5", "--stop", "x", "--stop", "y")
    params = settings.sampling({"temperature": 0.9, "top_p": 0.8, "max_tokens": 7})
    assert params == SamplingParams(temperature=0.5, top_p=0.8, max_tokens=7, stop=("x", "y"))
    assert parse("--temperature", "0").sampling({"temperature": 0.9}).is_greedy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-num-seq", "4"), "--max-num-seqs"),
        (("--block-sise", "16"), "--block-size"),
        (("--max-num-seqs", "1.5"), "fraction needs a suffix"),
        (("--max-num-seqs", "many"), "not a whole number"),
        (("--port", "http"), "--port"),
    ],
)
def test_a_wrong_command_line_names_what_is_wrong(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--block-size", "17"), "block_size must be one of 16, 32, 64, 128; given: 17"),
        (("--dtype", "int3"), "dtype must be one of"),
        (("--max-num-seqs", "0"), "max_num_seqs must be at least 1"),
        (("--max-num-seqs", "100", "--max-num-batched-tokens", "99"), "max_num_batched_tokens"),
    ],
)
def test_a_wrong_value_is_a_config_error(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*arguments).engine("m")


@pytest.mark.parametrize("flag", ["--backend", "--scheduling-policy"])
def test_a_wrong_choice_lists_the_choices(flag: str) -> None:
    with pytest.raises(ConfigError, match=r"must be one of .*; given: other"):
        parse(flag, "other").engine("m")


def test_a_wrong_sampling_value_is_named() -> None:
    with pytest.raises(InvalidParameterError, match="top_p"):
        parse("--top-p", "2").sampling({})


def test_every_setting_has_a_flag() -> None:
    """A new setting without a flag could not be reached from the command line."""
    sections: dict[str, Any] = {
        "model": ModelConfig,
        "cache": CacheConfig,
        "scheduler": SchedulerConfig,
        "engine": EngineConfig,
        "server": ServerConfig,
    }
    targets = {flag.target for flag in FLAGS}
    by_argument = {"model.model", "engine.model", "engine.cache", "engine.scheduler"}
    by_argument.add("engine.cpus")  # set where several engines divide them
    for section, kind in sections.items():
        for field in fields(kind):
            assert f"{section}.{field.name}" in targets | by_argument


def test_names_and_defaults_are_unique_and_there() -> None:
    spellings = [name for flag in FLAGS for name in flag.spellings]
    assert len(set(spellings)) == len(spellings)
    for flag in FLAGS:
        default_of(flag)
        assert flag.help.endswith(".")


@pytest.mark.parametrize("text", ["ngram", "[1]", "{"])
def test_a_speculative_config_is_a_json_object(text: str) -> None:
    with pytest.raises(ConfigError, match="--speculative-config takes a JSON object; given: "):
        parse("--speculative-config", text).engine("m")
