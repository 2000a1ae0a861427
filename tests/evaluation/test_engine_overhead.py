"""What a step costs beside the kernels does not grow with the pool, nor faster than the batch.

Ratios of neighbouring measurements; absolute bounds are ten times what an idle machine takes.
"""

import tracemalloc
from collections.abc import Callable

from octavo.core.block_tables import BlockTables
from octavo.core.sampling_params import SamplingParams
from octavo.evaluation.engine_overhead import EngineOverhead, measure_overhead

ATTEMPTS = 5
"""A machine that does other work at the same time disturbs one measurement, seldom all."""


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ATTEMPTS))


def measured(num_seqs: int, num_blocks: int = 40_000) -> EngineOverhead:
    return measure_overhead(num_seqs, num_blocks, context=100, num_steps=15)


def test_a_sequence_costs_no_more_in_a_large_batch() -> None:
    def ratio() -> float:
        return measured(1024).total_ms / 1024 / (measured(64).total_ms / 64)

    assert best(ratio) < 2.5


def test_a_step_costs_no_more_in_a_large_pool() -> None:
    def ratio() -> float:
        return measured(64, 1_000_000).total_ms / measured(64, 1_000).total_ms

    assert best(ratio) < 1.5


def test_a_step_is_short() -> None:
    assert best(lambda: measured(64).total_ms) < 1.5
    assert best(lambda: measured(1024).total_ms) < 25.0


def test_penalties_are_packed_in_proportion() -> None:
    params = SamplingParams(temperature=0.7, repetition_penalty=1.2, max_tokens=None)

    def ratio() -> float:
        sampled = measure_overhead(64, 4_000, context=100, num_steps=15, params=params)
        return sampled.pack_ms / measured(64).pack_ms

    assert best(ratio) < 12


def test_a_pool_of_a_million_blocks_opens_at_once_and_is_small() -> None:
    assert best(lambda: measure_overhead(1, 1_000_000, num_steps=1).open_pool_ms) < 50
    tracemalloc.start()
    try:
        tables = BlockTables(1_000_000, 16)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tables.num_free == 1_000_000
    assert peak < 60e6


def test_the_parts_add_up() -> None:
    overhead = measured(8)
    parts = (overhead.schedule_ms, overhead.pack_ms, overhead.commit_ms, overhead.report_ms)
    assert min(parts) > 0
    assert overhead.total_ms == sum(parts)
    assert (overhead.num_seqs, overhead.num_blocks) == (8, 40_000)
