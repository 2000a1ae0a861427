"""The engine in one process, over the fake runner."""

from array import array
from typing import Any

import msgspec
import pytest

from octavo.config import SchedulingPolicy, SpeculationConfig
from octavo.core.block_tables import BlockTables
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import Runner, Sample, StepPlan, StepResult
from octavo.engine.loop import Engine
from octavo.engine.messages import RequestEnd, StepOutputs, Submit
from octavo.engine.prompts import token_id_array
from octavo.errors import (
    ContextLengthError,
    DeadlineExceededError,
    InvalidParameterError,
    OctavoError,
    PromptError,
    QueueFullError,
)
from support.fake_runner import VOCAB_SIZE, FakeRunner, RowError

END = 7


def make_engine(
    runner: Runner | None = None,
    *,
    max_num_queued_reqs: int = 100,
    max_logprobs: int = 5,
    speculation: SpeculationConfig | None = None,
    max_num_queued_tokens: int = 10_000,
) -> Engine:
    runner = runner or FakeRunner(num_blocks=32, block_size=4)
    scheduler = Scheduler(
        BlockTables(runner.num_blocks, runner.block_size),
        max_num_batched_tokens=16,
        max_num_seqs=8,
        max_model_len=64,
        policy=SchedulingPolicy.FCFS,
        end_token_ids=frozenset({END}),
        speculation=speculation,
    )
    return Engine(
        scheduler,
        runner,
        vocab_size=VOCAB_SIZE,
        max_logprobs=max_logprobs,
        max_num_queued_reqs=max_num_queued_reqs,
        max_num_queued_tokens=max_num_queued_tokens,
    )


def submit(request_id: str, prompt: list[int], **params: Any) -> Submit:
    sampling = SamplingParams(**({"ignore_eos": True} | params))
    return Submit(request_id, token_id_array(prompt).tobytes(), sampling, seed=1)


def run(engine: Engine) -> list[StepOutputs]:
    outputs = []
    while engine.has_work:
        outputs.append(engine.step())
        assert len(outputs) < 1000
    return outputs


def tokens_of(outputs: list[StepOutputs], request_id: str, index: int = 0) -> list[int]:
    return [
        token_id
        for step in outputs
        for output in step.sequences
        if (output.request_id, output.index) == (request_id, index)
        for token_id in output.token_ids
    ]


def ends_of(outputs: list[StepOutputs]) -> dict[str, RequestEnd]:
    ends = [end for step in outputs for end in step.ends]
    assert len({end.request_id for end in ends}) == len(ends)
    return {end.request_id: end for end in ends}


def test_a_request_is_answered_and_ends_once() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1, 2, 3], max_tokens=5))
    outputs = run(engine)
    assert len(tokens_of(outputs, "a")) == 5
    assert outputs[-1].sequences[-1].finish_reason == "length"
    assert ends_of(outputs) == {"a": RequestEnd("a", 3)}


def test_one_message_a_step_holds_all_sequences() -> None:
    engine = make_engine()
    for name in "abc":
        engine.submit(submit(name, [1, 2], max_tokens=4))
    outputs = run(engine)
    assert len(outputs) == 4
    assert all(sorted(o.request_id for o in step.sequences) == ["a", "b", "c"] for step in outputs)


def test_the_step_is_schedule_run_commit() -> None:
    plans: list[StepPlan] = []

    class Recorder(FakeRunner):
        def run(self, plan: StepPlan) -> StepResult:
            plans.append(plan)
            return super().run(plan)

    engine = make_engine(Recorder(32, 4))
    engine.submit(submit("a", [1, 2, 3], max_tokens=2))
    engine.step()
    assert len(plans) == 1
    assert plans[0].seqs[0].token_ids == array("i", [1, 2, 3])


def test_stop_tokens_and_reasons_are_reported() -> None:
    def ending(history: "array[int]", sample: Sample) -> int:
        return END if sample.output_index == 2 else 9

    engine = make_engine(FakeRunner(32, 4, choose=ending))
    engine.submit(submit("eos", [1], ignore_eos=False))
    engine.submit(submit("own", [1], stop_token_ids=[END]))
    last = {o.request_id: o for step in run(engine) for o in step.sequences}
    assert (last["eos"].finish_reason, last["eos"].stop_reason) == ("stop", None)
    assert (last["own"].finish_reason, last["own"].stop_reason) == ("stop", END)


def test_logprobs_of_output_and_prompt() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1, 2, 3], max_tokens=3, logprobs=1, prompt_logprobs=1))
    outputs = run(engine)
    (prompt,) = [values for step in outputs for values in step.prompt_logprobs]
    assert [value.token_id for value in prompt.values] == [2, 3]
    assert outputs[0].prompt_logprobs == [prompt]
    for step in outputs:
        (output,) = step.sequences
        assert output.logprobs is not None
        assert [value.token_id for value in output.logprobs] == output.token_ids


@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([], {}, PromptError),
        ([1, VOCAB_SIZE], {}, PromptError),
        ([-1], {}, PromptError),
        ([1] * 64, {}, ContextLengthError),
        ([1], {"logprobs": 6}, InvalidParameterError),
        ([1], {"stop_token_ids": [VOCAB_SIZE]}, InvalidParameterError),
        ([1], {"n": 9}, InvalidParameterError),
    ],
)
def test_what_can_never_run_is_refused_untouched(
    prompt: list[int], params: dict[str, Any], error: type[OctavoError]
) -> None:
    engine = make_engine()
    engine.submit(submit("good", [1, 2], max_tokens=3))
    before = engine.stats
    with pytest.raises(error):
        engine.submit(submit("bad", prompt, **params))
    assert engine.stats == before
    outputs = run(engine)
    assert set(ends_of(outputs)) == {"good"}
    assert len(tokens_of(outputs, "good")) == 3


def test_the_queue_limit() -> None:
    engine = make_engine(max_num_queued_reqs=2)
    engine.submit(submit("a", [1]))
    engine.submit(submit("b", [1]))
    with pytest.raises(QueueFullError, match=r"at most 2 .*--max-num-queued-reqs"):
        engine.submit(submit("c", [1]))
    engine.step()
    engine.submit(submit("c", [1]))
    assert set(ends_of(run(engine))) == {"a", "b", "c"}


def test_the_queue_limit_in_tokens() -> None:
    engine = make_engine(max_num_queued_tokens=20)
    engine.submit(submit("long", [1] * 40))  # one may always wait
    with pytest.raises(
        QueueFullError, match=r"40 prompt tokens .* the 1 of .*--max-num-queued-tokens"
    ):
        engine.submit(submit("b", [1]))
    assert (engine.stats.num_queued_tokens, engine.stats.num_refused) == (40, 1)
    while engine.stats.num_queued_tokens:
        engine.step()
    engine.submit(submit("b", [1] * 20))
    with pytest.raises(QueueFullError) as refused:
        engine.submit(submit("c", [1]))
    assert refused.value.retry_after_s >= 1
    engine.abort(["b"])
    engine.submit(submit("c", [1] * 20))
    assert set(ends_of(run(engine))) >= {"long", "c"}
    assert engine.stats.num_queued_tokens == 0


def test_a_deadline_ends_a_request_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    now = 0.0
    monkeypatch.setattr(engine._deadlines, "_clock", lambda: now)
    with pytest.raises(DeadlineExceededError):
        engine.submit(msgspec.structs.replace(submit("late", [1]), timeout_s=0.0))
    for i in range(8):  # all seats
        engine.submit(submit(f"free{i}", [1 + i], max_tokens=12))
    engine.submit(msgspec.structs.replace(submit("waits", [9]), timeout_s=1.0))
    engine.step()
    runs = msgspec.structs.replace(submit("runs", [10], max_tokens=30), timeout_s=5.0)
    in_time = msgspec.structs.replace(submit("in_time", [11], max_tokens=2), timeout_s=5.0)
    engine.submit(runs)
    engine.submit(in_time)
    now = 1.5
    ended = engine.step()
    assert [(e.request_id, e.error_type) for e in ended.ends] == [
        ("waits", "DeadlineExceededError")
    ]
    assert [o.finish_reason for o in ended.sequences if o.request_id == "waits"] == ["error"]
    num_ended = 0
    while num_ended < 9:  # all but the one that runs longest
        num_ended += len(engine.step().ends)
    now = 6.0
    ends = ends_of(run(engine))
    assert ends["runs"].error_type == "DeadlineExceededError"
    assert "had not ended 5 s after" in (ends["runs"].error or "")
    assert engine.stats.num_timed_out == 2
    assert engine.stats.num_blocks_referenced == 0


def test_an_abort_is_a_last_word_and_frees_everything() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1, 2, 3], max_tokens=50, n=2, temperature=1.0))
    engine.submit(submit("b", [4, 5], max_tokens=3))
    engine.step()
    outputs = engine.abort(["a", "unknown"])
    assert [(o.request_id, o.index, o.finish_reason) for o in outputs.sequences] == [
        ("a", 0, "abort"),
        ("a", 1, "abort"),
    ]
    assert [end.request_id for end in outputs.ends] == ["a"]
    assert engine.abort(["a"]).ends == []
    assert set(ends_of(run(engine))) == {"b"}
    assert engine.stats.num_blocks_referenced == 0


def test_abort_all() -> None:
    engine = make_engine()
    for name in "abc":
        engine.submit(submit(name, [1]))
    assert {end.request_id for end in engine.abort_all().ends} == {"a", "b", "c"}
    assert not engine.has_work


def test_a_row_without_an_answer_fails_its_request_only() -> None:
    def broken(history: "array[int]", sample: Sample) -> int:
        if history[0] == 13 and sample.output_index == 1:
            raise RowError("the logits are not finite")
        return 9

    engine = make_engine(FakeRunner(32, 4, choose=broken))
    engine.submit(submit("bad", [13], max_tokens=4))
    engine.submit(submit("good", [1], max_tokens=4))
    outputs = run(engine)
    ends = ends_of(outputs)
    assert ends["good"].error is None
    assert ends["bad"].error_type == "RequestFailedError"
    assert "not finite" in (ends["bad"].error or "")
    assert tokens_of(outputs, "good") == [9] * 4


def test_a_runner_that_raises_ends_every_open_request() -> None:
    class Broken(FakeRunner):
        def run(self, plan: StepPlan) -> StepResult:
            raise RuntimeError("no more")

    engine = make_engine(Broken(32, 4))
    engine.submit(submit("a", [1, 2]))
    engine.submit(submit("b", [3]))
    with pytest.raises(RuntimeError, match="no more"):
        engine.step()
    ends = ends_of([engine.fail("it broke")])
    assert {name: (end.error, end.error_type) for name, end in ends.items()} == {
        "a": ("it broke", "EngineDeadError"),
        "b": ("it broke", "EngineDeadError"),
    }


def test_stats_count_what_happened() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1, 2, 3, 4, 5], max_tokens=4))
    engine.submit(submit("b", [1, 2], max_tokens=2))
    first = engine.step().stats
    assert (first.num_running, first.num_waiting) == (2, 0)
    assert (first.num_blocks_total, first.num_blocks_referenced) == (32, 3)
    assert (first.num_slots_used, first.num_slots_referenced) == (7, 12)
    assert first.kv_waste_sum == pytest.approx(5 / 12)
    run(engine)
    last = engine.stats
    assert (last.num_steps, last.num_prompt_tokens, last.num_generation_tokens) == (4, 7, 6)
    assert (last.num_running, last.num_blocks_free + last.num_blocks_cached) == (0, 32)
    assert last.step_seconds > 0


def test_a_prompt_in_chunks_counts_once_it_has_its_first_token() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1] * 40, max_tokens=1))
    counts = [step.stats.num_prompt_tokens for step in run(engine)]
    assert counts == [0, 0, 40]


def test_parallel_samples_share_their_prompt() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1, 2, 3, 4, 5], max_tokens=4, n=3, temperature=1.0))
    outputs = run(engine)
    texts = [tokens_of(outputs, "a", index) for index in range(3)]
    assert len({tuple(text) for text in texts}) == 3
    assert [len(text) for text in texts] == [4, 4, 4]
    assert set(ends_of(outputs)) == {"a"}
    assert max(step.stats.num_blocks_saved_by_sharing for step in outputs) > 0


def test_all_tokens_of_a_step_come_in_one_output() -> None:
    runner = FakeRunner(32, 4, choose=lambda history, sample: history[-2])
    engine = make_engine(runner, speculation=SpeculationConfig())
    engine.submit(submit("a", [1, 2, 1, 2], max_tokens=20, logprobs=0))
    outputs = run(engine)
    assert all(len(step.sequences) == 1 for step in outputs)
    assert max(len(step.sequences[0].token_ids) for step in outputs) > 3
    assert tokens_of(outputs, "a") == [1, 2] * 10
    for step in outputs:
        (output,) = step.sequences
        assert output.logprobs is not None
        assert [value.token_id for value in output.logprobs] == output.token_ids
    assert outputs[-1].sequences[0].finish_reason == "length"
    stats = engine.stats
    assert stats.num_generation_tokens == 20
    assert stats.num_accepted_tokens == 20 - len(outputs)
    assert stats.num_drafts <= len(outputs) - 1 <= stats.num_draft_tokens


def test_close_closes_the_runner() -> None:
    runner = FakeRunner(32, 4)
    make_engine(runner).close()
    assert runner.is_closed


def test_one_sequence_is_aborted() -> None:
    engine = make_engine()
    engine.submit(submit("a", [1, 2], max_tokens=6, n=2, temperature=1.0))
    engine.step()
    (output,) = engine.abort_sequence("a", 1).sequences
    assert (output.index, output.token_ids, output.finish_reason) == (1, [], "abort")
    outputs = run(engine)
    assert len(tokens_of(outputs, "a", 0)) == 5
    assert tokens_of(outputs, "a", 1) == []
    assert ends_of(outputs) == {"a": RequestEnd("a", 2)}
    assert engine.abort_sequence("a", 0).sequences == []
    assert engine.stats.num_blocks_referenced == 0
