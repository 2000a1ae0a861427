from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from octavo.checkpoints.quants import QuantType
from octavo.config import Backend, CacheConfig, EngineConfig, ModelConfig
from octavo.core.step import Runner, StepPlan, StepResult
from octavo.engine.build import BuiltEngine, build_engine
from octavo.evaluation import profiles
from octavo.evaluation.latency import (
    WARM_UP_STEPS,
    Sequences,
    measure_decode,
    measure_prefill,
    measure_single_stream,
    num_blocks_needed,
)
from octavo.evaluation.op_costs import (
    ATTENTION_OP,
    HEAD_OP,
    CostModel,
    OpCost,
    op_shares,
    total_costs,
)
from octavo.evaluation.peaks import Peaks, cache_kind, weight_kind
from octavo.evaluation.profiles import Profile, profile_median, profile_typical
from octavo.models.model import load_model
from octavo.models.weights import Weight
from support.text_model import (
    FEED_FORWARD,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCAB_SIZE,
    text_model_folder,
)


class Recorder:
    """Keeps the plans, draws the number of the step, and takes a fixed time by op."""

    num_blocks = 64
    block_size = 16

    def __init__(self) -> None:
        self.plans: list[StepPlan] = []
        self.is_profiling = False

    def run(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        return StepResult([len(self.plans)] * sum(seq.num_draws for seq in plan.seqs))

    def close(self) -> None:
        pass

    def set_profiling(self, on: bool) -> None:
        self.is_profiling = on

    def profile(self) -> Mapping[str, float]:
        assert self.is_profiling
        return {"qkv": len(self.plans) * 1e-3}


def sequences(count: int, length: int) -> Sequences:
    return Sequences(count, length, block_size=16, vocab_size=100)


def test_prompts_fill_the_budget() -> None:
    plans = list(sequences(3, 20).prompt_plans(20, 16))
    found = [[(s.seq_id, s.start, len(s.token_ids), len(s.samples)) for s in p.seqs] for p in plans]
    assert found == [
        [(0, 0, 16, 0)], [(0, 16, 4, 1), (1, 0, 12, 0)], [(1, 12, 8, 1), (2, 0, 8, 0)],
        [(2, 8, 12, 1)],
    ]  # fmt: skip


def test_no_two_sequences_share_a_page() -> None:
    made = sequences(4, 33)
    plan = made.decode_plan(4, 33)
    pages = [page for seq in plan.seqs for page in seq.block_table]
    assert sorted(pages) == list(range(12))
    assert pages != sorted(pages)
    assert len(pages) == num_blocks_needed(4, 33, 1, 100, 16)


def test_decoding_stays_at_its_context() -> None:
    runner = Recorder()
    made = sequences(4, 20)
    (found,) = measure_decode(runner, made, [2], 20, 5, budget=64)
    steps = runner.plans[-5 - WARM_UP_STEPS :]
    assert all([s.start for s in plan.seqs] == [19, 19] for plan in steps)
    # Each step computes the token that the step before it drew.
    ids = [seq.token_ids[0] for plan in steps for seq in plan.seqs]
    first = len(runner.plans) - len(steps)
    assert ids[2:] == [n for n in range(first + 1, first + len(steps)) for _ in range(2)]
    assert found.output_tokens_per_s == pytest.approx(2000 / found.step_ms.p50)
    assert found.profile is None


def test_the_median_of_each_op() -> None:
    runner = Recorder()
    plan = sequences(1, 8).decode_plan(1, 8)
    assert profile_median(runner, [plan] * 5) == {"qkv": pytest.approx(3e-3)}
    assert not runner.is_profiling


def test_a_typical_step_leaves_the_slowest_and_fastest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        """Stands still between the steps."""

        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(profiles, "time", clock)

    class Uneven(Recorder):
        """Each step takes a millisecond more than its op, the third one longest."""

        def run(self, plan: StepPlan) -> StepResult:
            result = super().run(plan)
            clock.now += self.profile()["qkv"] + 0.001
            return result

        def profile(self) -> Mapping[str, float]:
            return {"qkv": (0.02, 0.03, 0.5, 0.04)[len(self.plans) - 1]}

    found = profile_typical(Uneven(), [sequences(1, 8).decode_plan(1, 8)] * 4)
    assert found.op_seconds["qkv"] == pytest.approx(0.035)
    assert found.whole_s == pytest.approx(0.036)


def test_prompts_are_computed_whole_in_every_pass() -> None:
    runner = Recorder()
    found = measure_prefill(runner, sequences(3, 20), 20, 64, profiled=runner)
    assert len(found.passes_s) == 3
    assert sum(plan.num_tokens for plan in runner.plans) == 4 * 60
    middle = sorted(found.passes_s)[1]
    assert found.tokens_per_s == pytest.approx(60 / middle)
    assert found.profile is not None


@pytest.fixture(scope="module")
def built() -> BuiltEngine:
    """The engine of a tiny model."""
    return build_engine(
        EngineConfig(
            model=ModelConfig(model=str(text_model_folder())),
            cache=CacheConfig(num_blocks=16),
            backend=Backend.REFERENCE,
        )
    )


def test_a_single_stream(built: BuiltEngine) -> None:
    found = measure_single_stream(built.engine, 20, 9, VOCAB_SIZE)
    assert (found.prompt_len, found.num_output_tokens) == (20, 9)
    assert found.token_ms is not None and found.ttft_ms > 0
    assert found.output_tokens_per_s == pytest.approx(1000 / found.token_ms.p50)
    assert not built.engine.has_work


def test_the_reference_runner_runs_the_plans() -> None:
    runners: list[Runner] = []

    def keep(runner: Runner) -> Runner:
        runners.append(runner)
        return runner

    config = EngineConfig(
        model=ModelConfig(model=str(text_model_folder())),
        cache=CacheConfig(num_blocks=16),
        backend=Backend.REFERENCE,
    )
    build_engine(config, wrap_runner=keep)
    found = measure_decode(runners[0], sequences(4, 20), [1, 4], 20, 2, budget=64)
    assert [decode.batch for decode in found] == [1, 4]


def test_costs_of_a_step() -> None:
    model = load_model(Path(text_model_folder()))
    costs = CostModel(model.spec, model.weights, "float32", "bfloat16")
    made = sequences(2, 40)
    found = costs.step(made.decode_plan(2, 40))
    numbers = 2 * HIDDEN * FEED_FORWARD * LAYERS
    assert found["gate_up"] == OpCost(4 * numbers, {"float32": 2 * 2 * numbers})
    assert found["down"].operations == 2 * 2 * HIDDEN * FEED_FORWARD * LAYERS
    head = VOCAB_SIZE * HIDDEN
    assert found[HEAD_OP] == OpCost(4 * head, {"float32": 2 * 2 * head})
    # Two sequences of 40 keys and values, bfloat16, heads padded to 16 numbers.
    assert found[ATTENTION_OP].num_bytes == 2 * 40 * 2 * LAYERS * KV_HEADS * 16 * 2
    assert set(found[ATTENTION_OP].by_kind) == {"bfloat16"}
    assert found[ATTENTION_OP].operations == 2 * 40 * LAYERS * 4 * HEADS * HEAD_DIM
    first, last = (costs.step(plan) for plan in made.prompt_plans(30, 45))
    assert first[HEAD_OP].operations == 2 * head
    assert total_costs([first, last])["qkv"].operations == 60 * 2 * HIDDEN * LAYERS * (
        HIDDEN + 2 * KV_HEADS * HEAD_DIM
    )
    # Token p of a prompt attends to p + 1 keys.
    assert total_costs([first, last])[ATTENTION_OP].operations == (
        2 * sum(range(1, 31)) * LAYERS * 4 * HEADS * HEAD_DIM
    )


def test_shares_add_up_to_the_step() -> None:
    profile = Profile({"qkv": 2e-3, "norm": 5e-3}, 10e-3)
    peaks = Peaks(8e9, {"float32": 3e9, "bfloat16": 1e10, "int8": 2e10})
    costs = {"qkv": OpCost(4_000_000, {"float32": 3_000_000, "int8": 3_000_000})}
    rows = op_shares(profile, costs, peaks)
    assert [row.op for row in rows] == ["norm", "qkv", "(outside of ops)"]
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert rows[0].bytes_per_s is None
    assert rows[1].bytes_per_s == pytest.approx(2e9)
    assert rows[1].bandwidth_share == pytest.approx(0.25)
    assert rows[1].operations_per_s == pytest.approx(3e9)
    # Reading takes 0.5 ms at least, computing 1 + 0.15 ms.
    assert rows[1].roofline_share == pytest.approx(1.15 / 2)
    assert (rows[0].roofline_share, rows[2].roofline_share) == (None, None)
    assert rows[2].ms == pytest.approx(3.0)


def test_what_is_multiplied() -> None:
    for quant, columns, dtype, kind in (
        (QuantType.Q4_1, 64, "auto", "int8"),
        (QuantType.Q4_1, 64, "bfloat16", "bfloat16"),
        (QuantType.F16, 64, "auto", "bfloat16"),
        (QuantType.Q4_1, 64, "float32", "float32"),
        (QuantType.BF16, 64, "int8", "int8"),
        (QuantType.BF16, 64, "int4", "int8"),
        (QuantType.BF16, 48, "int4", "bfloat16"),  # no whole groups of 32
    ):
        weight = Weight("down", quant, (32, columns), np.empty((0, 0), np.uint8))
        assert weight_kind(weight, dtype) == kind
    assert [cache_kind(dtype) for dtype in ("float32", "bfloat16", "int8")] == [
        "float32",
        "bfloat16",
        "int8",
    ]
