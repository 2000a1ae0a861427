"""The measurement of what grammars cost, on an engine small enough to run at once."""

from pathlib import Path

import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from octavo.engine.build import build_engine
from octavo.evaluation.structured import measure_grammar_cost
from support.text_model import write_text_model


def test_both_rates_are_measured_and_nothing_is_left(tmp_path: Path) -> None:
    write_text_model(tmp_path / "model")
    config = EngineConfig(
        model=ModelConfig(model=str(tmp_path / "model")),
        cache=CacheConfig(num_blocks=64),
        speculation=False,
    )
    engine = build_engine(config).engine
    cost = measure_grammar_cost(engine, [5, 6, 7], num_seqs=4, num_steps=8, num_rounds=2)
    assert cost.plain_tokens_per_s > 0 and cost.structured_tokens_per_s > 0
    assert cost.cost == pytest.approx(cost.cost) and cost.cost < 1
    stats = engine.stats
    assert not engine.has_work and stats.num_blocks_referenced == 0
    assert stats.num_generation_tokens >= 3 * 2 * 4 * 8
    engine.close()
