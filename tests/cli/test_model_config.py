"""Several models from a file or from repeated flags: every setting arrives, every mistake has a place and a name."""

from pathlib import Path

import pytest

from octavo.cli.flags import Settings
from octavo.cli.model_config import named_models, read_model_config
from octavo.config import Backend, SchedulingPolicy
from octavo.errors import ConfigError
from octavo.server.models.settings import LoadWhen, ModelSettings, ShortPrompts, check_models
from support.command import octavo

COMMAND_LINE = Settings({"cache": {"block_size": 32}, "engine": {"num_threads": 2}})
COMPLETE = """
models:
  - name: large
    model: ./large.gguf
    aliases: [gpt-4o, default]
    dtype: bfloat16
    max_model_len: 4K
    kv-cache-memory-bytes: 2G
    enable-prefix-caching: false
    max-num-queued-reqs: 64
    scheduling-policy: priority
    backend: reference
    seed: -3
    chat-template: chat.jinja
    load: demand
    idle-unload: 300
    fallback: small
    short-prompts: {model: small, max-chars: 400}
    speculative-config: {method: ngram, num_speculative_tokens: 3}
  - {name: small, model: smollm2, threads: 1}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(text)
    return path


def test_every_setting_arrives(tmp_path: Path) -> None:
    large, small = read_model_config(write(tmp_path, COMPLETE), COMMAND_LINE)
    check_models([large, small])
    assert (large.name, large.aliases) == ("large", ("gpt-4o", "default"))
    engine = large.engine
    assert (engine.model.model, engine.model.dtype) == ("./large.gguf", "bfloat16")
    assert engine.model.max_model_len == 4096
    assert engine.cache.kv_cache_memory_bytes == 2 << 30
    assert engine.cache.prefix_caching is False
    assert engine.cache.block_size == 32  # of the command line
    assert engine.scheduler.max_num_queued_reqs == 64
    assert engine.scheduler.policy is SchedulingPolicy.PRIORITY
    assert (engine.backend, engine.seed, engine.num_threads) == (Backend.REFERENCE, -3, 2)
    assert engine.speculative_config is not None
    assert engine.speculative_config.num_speculative_tokens == 3
    assert (large.chat_template, large.load) == ("chat.jinja", LoadWhen.DEMAND)
    assert (large.idle_unload_s, large.fallback) == (300.0, "small")
    assert large.short_prompts == ShortPrompts("small", 400)
    assert (small.engine.num_threads, small.load, small.fallback) == (1, LoadWhen.START, None)


def test_json_is_yaml(tmp_path: Path) -> None:
    text = '{"models": [{"name": "a", "model": "b", "threads": null}]}'
    (model,) = read_model_config(write(tmp_path, text), COMMAND_LINE)
    assert (model.name, model.engine.model.model, model.engine.num_threads) == ("a", "b", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [", "is not YAML"),
        ("[]", "a mapping with a list `models` was expected"),
        ("models: {}", "a mapping with a list `models` was expected"),
        ("{models: [], port: 1}", "there is no setting 'port'"),
        ("models: [{name: a}]", "models[0]: model is missing"),
        ("models: [{name: a, model: b, alias: [c]}]", "'alias'; did you mean aliases?"),
        ("models: [{name: a, model: b, port: 1}]", "there is no setting 'port'"),
        ("models: [{name: a, model: b, dtype: half}]", "models[0] (a): dtype must be one of"),
        ("models: [{name: a, model: b, threads: x}]", "threads: 'x' is not a whole number"),
        ("models: [{name: a, model: b, threads: true}]", "threads takes a whole number"),
        ("models: [{name: a, model: b, seed: 1.5}]", "seed takes an integer; given: 1.5"),
        ("models: [{name: a, model: b, aliases: c}]", "aliases takes a list of texts"),
        ("models: [{name: a, model: b, load: soon}]", "load must be one of start, demand, command"),
        ("models: [{name: a, model: b, idle-unload: 0}]", "idle-unload must be above 0"),
        ("models: [{name: a, model: b, short-prompts: {model: c}}]", "needs model and max-chars"),
        ("models: [{name: ' ', model: b}]", "must not be empty"),
    ],
)
def test_a_mistake_has_a_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_model_config(write(tmp_path, text), COMMAND_LINE)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def model(name: str, **settings: object) -> ModelSettings:
    return ModelSettings(name, COMMAND_LINE.engine("x"), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "there are no models"),
        ([model("a"), model("a")], "the name a is given to two models: a and a"),
        ([model("a"), model("b", aliases=("a",))], "given to two models: a and b"),
        ([model("a", fallback="c")], "a: fallback must be one of a; given: c"),
        ([model("a", aliases=("b",), fallback="b")], "a: fallback is the model itself"),
        ([model("a", short_prompts=ShortPrompts("c", 9))], "a: short-prompts: model must be one"),
    ],
)
def test_models_that_do_not_fit_together(models: list[ModelSettings], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_models(models)


def test_repeated_flags(tmp_path: Path) -> None:
    models = named_models(["a=./x.gguf", "b=org/name"], COMMAND_LINE)
    assert models is not None
    assert [(m.name, m.engine.model.model) for m in models] == [
        ("a", "./x.gguf"),
        ("b", "org/name"),
    ]
    file = tmp_path / "a=b.gguf"
    file.touch()
    assert named_models([str(file)], COMMAND_LINE) is None  # a path, not a name
    with pytest.raises(
        ConfigError, match="needs a name: --model NAME=MODEL; given: --model smollm2"
    ):
        named_models(["a=x", "smollm2"], COMMAND_LINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("smollm2", "--model", "a=x"), "give one MODEL, or several"),
        (("--model-config", "/nowhere.yaml"), "/nowhere.yaml: No such file"),
        (
            ("--model", "a=/nowhere.gguf", "--served-model-name", "b"),
            "--served-model-name is for one",
        ),
        (
            ("--model", "a=/nowhere.gguf", "--model", "a=/no.gguf"),
            "the name a is given to two models",
        ),
        (("--model", "x", "--model", "y"), "each of several models needs a name"),
    ],
)
def test_a_mistake_on_the_command_line(arguments: tuple[str, ...], message: str) -> None:
    result = octavo("serve", *arguments)
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
