"""The comparison with and without speculation, on a tiny model."""

from pathlib import Path

import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.engine.build import build_engine
from octavo.errors import ConfigError
from octavo.evaluation.speculation import Prompt, measure_speculation, read_prompts
from support.tiny_models import tiny_folder

PROMPTS = Path(__file__).parents[2] / "bench" / "text" / "requests.jsonl"


def config(*, speculation: bool) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(str(tiny_folder("llama"))),
        cache=CacheConfig(num_blocks=40),
        scheduler=SchedulerConfig(max_num_seqs=1),
        speculation=speculation,
    )


def test_gains_are_measured_prompt_by_prompt() -> None:
    plain, guessing = (build_engine(config(speculation=on)).engine for on in (False, True))
    prompts = [Prompt("a", "edit", "x"), Prompt("b", "question", "y")]
    encoded = {"x": [1, 2, 3, 4] * 8, "y": [5]}
    gains = measure_speculation(
        plain, guessing, prompts, encoded.__getitem__, max_tokens=60, num_rounds=2
    )
    assert [(gain.id, gain.kind, gain.num_prompt_tokens) for gain in gains] == [
        ("a", "edit", 32),
        ("b", "question", 1),
    ]
    for gain in gains:
        assert gain.num_output_tokens == 60
        assert min(gain.plain_tokens_per_s, gain.guessing_tokens_per_s, gain.speedup) > 0
        assert gain.acceptance_rate is None or 0 <= gain.acceptance_rate <= 1
    assert plain.stats.num_draft_tokens == 0
    assert guessing.stats.num_draft_tokens > 0
    for engine in (plain, guessing):
        assert engine.stats.num_blocks_referenced == 0
        engine.close()


def test_the_prompts_of_the_project() -> None:
    prompts = read_prompts(PROMPTS)
    assert {prompt.kind for prompt in prompts} == {"edit", "extract", "summary", "question"}
    assert len({prompt.id for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize("line", ['{"id": "a", "kind": "edit"}', "[]", "{"])
def test_a_line_that_is_no_prompt(tmp_path: Path, line: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "kind": "edit", "text": "b"}\n' + line)
    with pytest.raises(ConfigError, match=r"prompts.jsonl:2: not a prompt"):
        read_prompts(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_prompts(tmp_path / "none.jsonl")


def test_no_prompts(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="no prompts"):
        read_prompts(path)
