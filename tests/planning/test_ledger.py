"""What is planned is what a server takes, and what it says will fit does fit."""

from dataclasses import replace
from pathlib import Path
from shutil import copy

import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from octavo.engine.build import build_engine, facts_of
from octavo.errors import ConfigError, MemoryShortageError
from octavo.machine import inspect_machine
from octavo.models.outline import outline_of_numbers, read_outline
from octavo.planning.ledger import Held, make_ledger
from octavo.planning.workloads import Lengths, Population, draw_lengths
from octavo.remedies import remedies, resolve_or_advise
from octavo.resolve import resolve
from support.tiny_models import tiny_folder

GIB = 1024**3
NUMBERS = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
LLAMA_8B = outline_of_numbers(NUMBERS)
L4 = replace(inspect_machine(), memory_total=24 * GIB, memory_available=24 * GIB)


def test_a_model_by_its_numbers() -> None:
    ledger = make_ledger(EngineConfig(), LLAMA_8B, L4)
    assert ledger.chosen.weights == pytest.approx(2 * 8.03e9, rel=0.01)
    assert ledger.chosen.token_bytes == 2 * 32 * 8 * 128 * 2
    assert ledger.remedies == ()
    formats = {(row.dtype, row.kv_cache_dtype) for row in ledger.rows}
    assert len(formats) == len(ledger.rows)
    assert {("float32", "int8"), ("bfloat16", "bfloat16")} <= formats
    assert next(r for r in ledger.rows if r.dtype == "float32").shortage is not None


def test_numbers_that_are_missing() -> None:
    with pytest.raises(ConfigError, match="needs hidden_size, vocab_size as well"):
        outline_of_numbers(
            {k: v for k, v in NUMBERS.items() if k not in ("hidden_size", "vocab_size")}
        )


def test_the_ledger_is_that_of_the_server() -> None:
    config = EngineConfig(
        model=ModelConfig(str(tiny_folder("llama"))), cache=CacheConfig(num_blocks=64)
    )
    outline = read_outline(tiny_folder("llama"))
    ledger = make_ledger(config, outline, inspect_machine())
    built = build_engine(config)
    built.engine.close()
    assert ledger.chosen.memory is not None
    planned = {k: v for k, v in ledger.chosen.memory.lines if k != "available"}
    served = {line.name: line.num_bytes for line in built.ready.ledger if line.name != "available"}
    assert planned == served


def test_a_config_alone_is_enough(tmp_path: Path) -> None:
    copy(tiny_folder("qwen3") / "config.json", tmp_path)
    alone, whole = read_outline(tmp_path), read_outline(tiny_folder("qwen3"))
    assert alone.spec == whole.spec
    assert {k: w.shape for k, w in alone.weights.items()} == {
        k: w.shape for k, w in whole.weights.items()
    }


@pytest.mark.parametrize("gib", [15.5, 17.0, 18.0])
@pytest.mark.parametrize("max_model_len", [None, 8192])
def test_what_is_said_to_fit_fits(gib: float, max_model_len: int | None) -> None:
    memory = int(gib * GIB)
    machine = replace(L4, memory_total=memory, memory_available=memory)
    config = EngineConfig(model=ModelConfig("8b", dtype="float32", max_model_len=max_model_len))
    with pytest.raises(MemoryShortageError):
        resolve(config, facts_of(LLAMA_8B, config), machine)
    for command in remedies(config, lambda c: facts_of(LLAMA_8B, c), machine):
        tried = of_command(command)
        resolve(tried, facts_of(LLAMA_8B, tried), machine)


def of_command(command: str) -> EngineConfig:
    """The settings of an `octavo serve` command."""
    program, serve, name, *flags = command.split()
    assert (program, serve, name) == ("octavo", "serve", "8b")
    values = dict(zip(flags[::2], flags[1::2], strict=True))
    config = EngineConfig()
    return replace(
        config,
        model=ModelConfig(
            name,
            dtype=values.get("--dtype", "auto"),
            max_model_len=int(values["--max-model-len"]),
        ),
        cache=CacheConfig(kv_cache_dtype=values.get("--kv-cache-dtype", "auto")),
        scheduler=replace(
            config.scheduler,
            max_num_batched_tokens=int(values.get("--max-num-batched-tokens", 2048)),
            max_num_seqs=int(values.get("--max-num-seqs", 256)),
        ),
    )


def test_the_refusal_has_the_ledger_and_commands() -> None:
    machine = replace(L4, memory_total=18 * GIB, memory_available=18 * GIB)
    config = EngineConfig(model=ModelConfig("8b", max_model_len=8192))
    small = replace(config, cache=CacheConfig(kv_cache_memory_bytes=GIB // 4))
    with pytest.raises(MemoryShortageError) as refused:
        resolve_or_advise(small, lambda c: facts_of(LLAMA_8B, c), machine)
    text = str(refused.value)
    assert "weights (auto) 14.96 GiB" in text
    assert "octavo serve 8b --max-model-len 8192" in text
    assert "\n" not in text


def test_nothing_fits() -> None:
    machine = replace(L4, memory_total=GIB, memory_available=GIB)
    ledger = make_ledger(EngineConfig(), LLAMA_8B, machine)
    assert ledger.chosen.shortage is not None
    assert ledger.remedies == ()
    assert ledger.chosen.num_full_sequences == 0


def test_requests_that_run_at_once_are_longer_than_requests() -> None:
    """Long answers are there for longer; the closed form is that of the mean over steps."""
    held = Held.by([(10, 100), (10, 1)])
    by_steps = [10 + k + 0.5 for k in range(100)] + [10.5]
    assert held.mean_tokens == pytest.approx(sum(by_steps) / len(by_steps))
    lengths = draw_lengths(Population(Lengths(100), Lengths(200)), 10, max_model_len=4096)
    assert Held.by(lengths).mean_tokens == 200
