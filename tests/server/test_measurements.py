"""Histograms, clocks, and what /metrics makes of them."""

import time

import pytest

from octavo.engine.messages import EngineStats
from octavo.server.histogram import TOKENS, Histogram
from octavo.server.metrics import ChoiceClock, Metrics
from octavo.server.stats_log import stats_line


def test_a_value_counts_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((1.0, 2.0, 5.0))
    for value in (0.5, 1.0, 1.5, 5.0, 7.0):
        histogram.observe(value)
    histogram.observe(2.0, times=3)
    assert histogram.cumulative() == [("1.0", 2.0), ("2.0", 6.0), ("5.0", 7.0), ("+Inf", 8.0)]
    assert histogram.total == 21.0


def test_token_buckets_are_a_1_2_5_series() -> None:
    assert TOKENS[:6] == (1, 2, 5, 10, 20, 50)
    assert TOKENS[-1] == 500_000


def test_a_clock_measures_from_arrival_to_the_end() -> None:
    metrics = Metrics()
    clock = ChoiceClock(metrics, time.perf_counter() - 2.0)
    clock.tokens(1)
    clock.tokens(3)
    clock.end("stop")
    clock.end("abort")
    assert metrics.num_finished == {"stop": 1, "length": 0, "abort": 0, "error": 0}
    assert metrics.time_to_first_token_s.total == pytest.approx(2.0, abs=0.5)
    assert metrics.e2e_latency_s.total == pytest.approx(2.0, abs=0.5)
    assert metrics.inter_token_latency_s.cumulative()[-1] == ("+Inf", 3.0)
    assert metrics.generation_tokens.total == 4
    assert metrics.time_per_output_token_s.cumulative()[-1] == ("+Inf", 1.0)


def test_a_choice_without_tokens_has_no_token_latencies() -> None:
    metrics = Metrics()
    ChoiceClock(metrics, time.perf_counter()).end("abort")
    assert metrics.num_finished["abort"] == 1
    assert metrics.time_to_first_token_s.cumulative()[-1] == ("+Inf", 0.0)
    assert metrics.decode_time_s.cumulative()[-1] == ("+Inf", 0.0)


def test_the_log_line_has_rates() -> None:
    before = EngineStats(num_prompt_tokens=100, num_generation_tokens=10)
    now = EngineStats(
        num_prompt_tokens=300,
        num_generation_tokens=60,
        num_running=2,
        num_waiting=1,
        num_blocks_total=8,
        num_blocks_referenced=2,
        num_prefix_queries=200,
        num_prefix_hits=150,
    )
    assert stats_line(before, now, 10.0) == (
        "Engine 000: Avg prompt throughput: 20.0 tokens/s, "
        "Avg generation throughput: 5.0 tokens/s, "
        "Running: 2 reqs, Waiting: 1 reqs, KV cache usage: 25.0%, "
        "Prefix cache hit rate: 75.0%"
    )
