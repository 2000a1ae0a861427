from pathlib import Path

import pytest

from octavo.config import Backend, CacheConfig, EngineConfig, ModelConfig
from octavo.engine.build import BuiltEngine, build_engine
from octavo.errors import ConfigError
from octavo.evaluation.throughput import WorkItem, read_workload, run_workload
from support.text_model import text_model_folder


def engine_with(num_blocks: int) -> BuiltEngine:
    return build_engine(
        EngineConfig(
            model=ModelConfig(model=str(text_model_folder())),
            cache=CacheConfig(num_blocks=num_blocks),
            backend=Backend.REFERENCE,
        )
    )


ITEMS = [WorkItem(str(i), (100 + i, *range(21, 40 + i)), 20) for i in range(5)]
"""None begins as another does: nobody waits for a prefix."""


def test_only_the_run_itself_is_counted() -> None:
    built = engine_with(64)
    stages: list[tuple[str, float]] = []
    result = run_workload(built.engine, ITEMS, built.ready, lambda *stage: stages.append(stage))
    assert result.num_requests == 5
    assert result.num_output_tokens == 100
    assert result.num_prompt_tokens == sum(range(20, 25))
    assert result.num_steps == 20  # the warm-up's are not among them
    assert result.num_preemptions == 0
    assert result.elapsed_s > 0
    assert stages[-1] == ("running", 1.0)
    assert not built.engine.has_work


def test_waste_is_the_share_of_empty_slots() -> None:
    """One sequence that grows from 20 to 39 tokens in pages of 16."""
    built = engine_with(64)
    result = run_workload(built.engine, ITEMS[:1], built.ready)
    # After step i, 20 + i slots hold a token; the last step leaves no page behind.
    waste = [1 - n / (-(-n // 16) * 16) for n in range(20, 39)]
    assert result.kv_waste_mean == pytest.approx(sum(waste) / 20)


def test_preemptions_are_counted() -> None:
    built = engine_with(12)
    items = [WorkItem(str(i), tuple(range(20, 36 + i)), 60) for i in range(8)]
    result = run_workload(built.engine, items, built.ready)
    assert result.num_preemptions > 0
    assert result.num_output_tokens == 480


def test_a_request_that_would_end_early_is_an_error() -> None:
    built = engine_with(2)
    with pytest.raises(ConfigError, match=r"request 0: 20 prompt tokens .* do not fit into 32"):
        run_workload(built.engine, ITEMS, built.ready)


def test_an_absent_or_empty_workload(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_workload(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match="no requests"):
        read_workload(tmp_path / "empty.jsonl")


def test_the_workloads_of_the_project() -> None:
    folder = Path(__file__).parents[2] / "bench" / "workloads"
    assert len(read_workload(folder / "sharegpt64.jsonl")) == 64
    assert len(read_workload(folder / "alpaca128.jsonl")) == 128
