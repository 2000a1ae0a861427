"""Scheduler: exact plans and events for small cases."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from octavo.config import SchedulingPolicy
from octavo.core.events import PromptEvent, RequestEndEvent, SequenceEndEvent, TokenEvent
from octavo.core.request import FinishReason
from octavo.core.step import Sample, StepPlan, StepResult
from support.fake_runner import Choose, FakeRunner, RowError, draw, logprobs_of
from support.scheduling import Rig, expected_outputs, make_request

STOP, LENGTH, ABORT, ERROR = FinishReason


def shape(plan: StepPlan) -> list[tuple[int, int, int, int]]:
    """(sequence, start, tokens, samples) of each part of a plan."""
    return [(s.seq_id, s.start, len(s.token_ids), len(s.samples)) for s in plan.seqs]


def always(token_id: int) -> Choose:
    return lambda history, sample: token_id


def test_nothing_to_do_is_an_empty_plan() -> None:
    rig = Rig()
    plan = rig.step()
    assert (plan.seqs, plan.copies, plan.num_tokens) == ((), (), 0)
    assert not rig.scheduler.has_work


def test_a_request_from_prompt_to_end() -> None:
    rig = Rig(choose=always(9))
    rig.scheduler.add(make_request("a", prompt=[5, 6, 7], seed=3, max_tokens=2))
    assert (rig.scheduler.num_waiting, rig.scheduler.num_running) == (1, 0)

    plan = rig.scheduler.schedule()
    (step,) = plan.seqs
    assert (list(step.token_ids), step.start, list(step.block_table)) == ([5, 6, 7], 0, [0])
    (sample,) = step.samples
    assert (sample.seed, sample.output_index, list(sample.token_ids)) == (3, 0, [5, 6, 7])
    assert rig.scheduler.commit(plan, rig.runner.run(plan)) == [
        PromptEvent("a", 0),
        TokenEvent("a", 0, 9, None, None, None),
    ]
    assert (rig.scheduler.num_waiting, rig.scheduler.num_running) == (0, 1)

    plan = rig.scheduler.schedule()
    (step,) = plan.seqs
    assert (list(step.token_ids), step.start, list(step.block_table)) == ([9], 3, [0])
    assert step.samples[0].output_index == 1
    assert rig.scheduler.commit(plan, rig.runner.run(plan)) == [
        TokenEvent("a", 0, 9, None, LENGTH, None),
        RequestEndEvent("a", 3, 0, 0),
    ]
    assert not rig.scheduler.has_work
    rig.check()


def test_a_plan_stays_true_after_its_commit() -> None:
    rig = Rig(block_size=2)
    rig.scheduler.add(make_request("a", prompt=4, max_tokens=9, ignore_eos=True))
    plan = rig.step()
    table, tokens = list(plan.seqs[0].block_table), list(plan.seqs[0].token_ids)
    rig.run()
    assert (list(plan.seqs[0].block_table), list(plan.seqs[0].token_ids)) == (table, tokens)


def test_long_prompts_are_chunked_and_decoding_sequences_go_first() -> None:
    rig = Rig(prefix_caching=False, max_num_batched_tokens=8, choose=always(9))
    rig.scheduler.add(make_request("long", prompt=13, max_tokens=3))
    assert shape(rig.step()) == [(0, 0, 8, 0)]
    rig.scheduler.add(make_request("short", prompt=2, max_tokens=3))
    rig.scheduler.add(make_request("longer", prompt=20, max_tokens=3))
    assert shape(rig.step()) == [(0, 8, 5, 1), (1, 0, 2, 1), (2, 0, 1, 0)]
    assert shape(rig.step()) == [(0, 13, 1, 1), (1, 2, 1, 1), (2, 1, 6, 0)]
    assert shape(rig.step()) == [(0, 14, 1, 1), (1, 3, 1, 1), (2, 7, 6, 0)]
    assert shape(rig.step()) == [(2, 13, 7, 1)]


def test_a_long_prompt_of_a_better_class_does_not_stop_decoding() -> None:
    rig = Rig(max_num_batched_tokens=8, policy=SchedulingPolicy.PRIORITY, choose=always(9))
    rig.scheduler.add(make_request("low", prompt=3, priority=1, max_tokens=9))
    rig.step()
    rig.scheduler.add(make_request("high", prompt=20, priority=0, max_tokens=9))
    assert shape(rig.step()) == [(0, 3, 1, 1), (1, 0, 7, 0)]
    assert shape(rig.step()) == [(0, 4, 1, 1), (1, 7, 7, 0)]


def test_nobody_is_admitted_without_tokens_to_compute() -> None:
    rig = Rig(max_num_batched_tokens=8, choose=always(9))
    rig.scheduler.add(make_request("long", prompt=16, max_tokens=3))
    rig.scheduler.add(make_request("short", prompt=2, max_tokens=3))
    for num_running in (1, 1, 2):
        rig.step()
        assert rig.scheduler.num_running == num_running


def test_the_budget_is_never_exceeded_and_never_idle() -> None:
    rig = Rig(max_num_batched_tokens=10, max_num_seqs=5)
    for number in range(12):
        rig.scheduler.add(make_request(f"{number}", prompt=3 + 4 * number % 17, max_tokens=6))
    for plan in rig.run():
        assert 0 < plan.num_tokens <= 10
        assert len(plan.seqs) <= 5


def test_requests_wait_for_seats_and_come_in_order_of_arrival() -> None:
    rig = Rig(max_num_seqs=2, choose=always(9))
    for name in "abcd":
        rig.scheduler.add(make_request(name, prompt=3, max_tokens=2))
    rig.step()
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (2, 2)
    rig.run()
    assert rig.log.ended == ["a", "b", "c", "d"]


def test_priority_is_ignored_under_fcfs() -> None:
    rig = Rig(max_num_seqs=1, choose=always(9))
    rig.scheduler.add(make_request("first", priority=5))
    rig.scheduler.add(make_request("second", priority=-5))
    rig.run()
    assert rig.log.ended == ["first", "second"]


@pytest.mark.parametrize(
    ("params", "forced", "tokens", "reason", "stop_reason"),
    [
        ({"max_tokens": 4}, [9, 9, 9, 9], 4, LENGTH, None),
        ({"max_tokens": 1}, [9], 1, LENGTH, None),
        ({"max_tokens": 4}, [9, 0], 2, STOP, None),
        ({"max_tokens": 2}, [9, 0], 2, STOP, None),
        ({"max_tokens": 4, "ignore_eos": True}, [0, 0, 0, 0], 4, LENGTH, None),
        ({"max_tokens": 4, "stop_token_ids": (8,)}, [9, 8], 2, STOP, 8),
        ({"max_tokens": 4, "stop_token_ids": (8,), "ignore_eos": True}, [0, 8], 2, STOP, 8),
        ({"max_tokens": 4, "stop_token_ids": (0,), "ignore_eos": True}, [9, 0], 2, STOP, 0),
        ({"max_tokens": 4, "min_tokens": 2}, [0, 0, 0], 3, STOP, None),
        ({"max_tokens": 4, "min_tokens": 4}, [0, 0, 0, 0], 4, LENGTH, None),
        ({"max_tokens": None}, [9] * 59, 59, LENGTH, None),
        ({"max_tokens": 1000}, [9] * 59, 59, LENGTH, None),
    ],
)
def test_how_a_sequence_ends(
    params: dict[str, Any],
    forced: list[int],
    tokens: int,
    reason: FinishReason,
    stop_reason: int | None,
) -> None:
    rig = Rig(choose=lambda history, sample: forced[sample.output_index])
    rig.scheduler.add(make_request("a", prompt=5, **params))
    rig.run()
    outcome = rig.log["a"]
    assert outcome.token_ids == {0: forced[:tokens]}
    assert outcome.finish_reasons == {0: reason}
    assert outcome.stop_reasons.get(0) == stop_reason
    assert outcome.end == RequestEndEvent("a", 5, 0, 0)


def test_end_tokens_are_suppressed_until_min_tokens() -> None:
    rig = Rig()
    seen: list[tuple[int, ...]] = []

    def choose(history: object, sample: Sample) -> int:
        seen.append(sample.suppressed_token_ids)
        return 9

    assert isinstance(rig.runner, FakeRunner)
    rig.runner._choose = choose
    rig.scheduler.add(make_request("a", max_tokens=4, min_tokens=2, stop_token_ids=(7,)))
    rig.run()
    assert seen == [(0, 7), (0, 7), (), ()]


def test_logprobs_are_passed_on() -> None:
    rig = Rig(choose=always(9))
    request = make_request("a", prompt=3, max_tokens=1, logprobs=1)
    rig.scheduler.add(request)
    plan = rig.scheduler.schedule()
    events = rig.scheduler.commit(plan, rig.runner.run(plan))
    logprobs = logprobs_of(request.prompt_token_ids, 9, 1)
    assert events[1] == TokenEvent("a", 0, 9, logprobs, LENGTH, None)


@pytest.mark.parametrize("budget", [1, 2, 3, 100])
@pytest.mark.parametrize("prompt_len", [1, 2, 7])
def test_prompt_logprobs_come_once_before_the_first_token(budget: int, prompt_len: int) -> None:
    rig = Rig(max_num_batched_tokens=budget)
    request = make_request("a", prompt=prompt_len, max_tokens=3, ignore_eos=True, prompt_logprobs=1)
    rig.scheduler.add(request)
    plans = rig.run()
    prompt = request.prompt_token_ids
    expected = tuple(logprobs_of(prompt[:n], prompt[n], 1) for n in range(1, prompt_len))
    assert rig.log["a"].prompt_logprobs == expected
    targets = [token for plan in plans for step in plan.seqs for token in step.prompt_targets]
    assert targets == list(prompt[1:])


def test_a_failed_row_fails_its_request_only() -> None:
    def choose(history: object, sample: Sample) -> int:
        if sample.seed == 13 and sample.output_index == 1:
            raise RowError("logits are not finite")
        return 9

    rig = Rig(prefix_caching=False, choose=choose)
    rig.scheduler.add(make_request("good", seed=1, max_tokens=4))
    rig.scheduler.add(make_request("bad", seed=13, max_tokens=4))
    rig.run()
    assert rig.log["good"].finish_reasons == {0: LENGTH}
    assert rig.log["bad"].token_ids == {0: [9]}
    assert rig.log["bad"].finish_reasons == {0: ERROR}
    assert rig.log["bad"].end == RequestEndEvent(
        "bad", 5, 0, 0, error="logits are not finite", error_type="RequestFailedError"
    )


def test_abort_ends_a_request_wherever_it_is() -> None:
    rig = Rig(prefix_caching=False, max_num_seqs=1, max_num_batched_tokens=4, choose=always(9))
    for name in ("chunked", "decoding", "waiting", "rest"):
        rig.scheduler.add(make_request(name, prompt=6, max_tokens=4))
    rig.step()
    assert rig.scheduler.abort("chunked") == [
        SequenceEndEvent("chunked", 0, ABORT),
        RequestEndEvent("chunked", 6, 0, 0),
    ]
    assert rig.scheduler.usage().num_blocks_referenced == 0
    for _ in range(3):
        rig.step()
    rig.abort("decoding")
    rig.abort("waiting")
    assert rig.scheduler.usage().num_blocks_referenced == 0
    rig.run()
    assert rig.log["decoding"].token_ids == {0: [9, 9]}
    assert rig.log["waiting"].token_ids == {}
    assert rig.log["rest"].finish_reasons == {0: LENGTH}
    assert rig.log.ended == ["decoding", "waiting", "rest"]
    assert rig.scheduler.abort("rest") == rig.scheduler.abort("never seen") == []


def test_results_of_a_request_aborted_within_the_step_are_ignored() -> None:
    rig = Rig(prefix_caching=False)
    newcomer = make_request("d", seed=ord("d"), max_tokens=5, ignore_eos=True)
    requests = [make_request(name, seed=ord(name), max_tokens=5, ignore_eos=True) for name in "abc"]
    for request in requests:
        rig.scheduler.add(request)
    rig.step()

    def abort_one_and_add_another(plan: StepPlan) -> None:
        rig.abort("b")
        rig.scheduler.add(newcomer)

    rig.step(abort_one_and_add_another)
    rig.run()
    assert len(rig.log["b"].token_ids[0]) == 1
    rig.check_answer(requests[0])
    rig.check_answer(requests[2])
    rig.check_answer(newcomer)


def test_the_id_of_an_aborted_request_is_free_at_once() -> None:
    rig = Rig(choose=always(9))
    rig.scheduler.add(make_request("a", max_tokens=2))

    def replace(plan: StepPlan) -> None:
        assert len(rig.scheduler.abort("a")) == 2
        rig.scheduler.add(make_request("a", max_tokens=3))

    rig.step(replace)
    rig.run()
    assert rig.log["a"].token_ids == {0: [9, 9, 9]}


def short_result(plan: StepPlan) -> StepResult:
    return StepResult([])


def long_result(plan: StepPlan) -> StepResult:
    return StepResult([9, 9])


@pytest.mark.parametrize("result", [short_result, long_result])
def test_a_runner_answers_every_sample_once(result: Callable[[StepPlan], StepResult]) -> None:
    rig = Rig()
    rig.scheduler.add(make_request("a"))
    plan = rig.scheduler.schedule()
    with pytest.raises((AssertionError, IndexError)):
        rig.scheduler.commit(plan, result(plan))


def test_only_the_last_plan_is_committed() -> None:
    rig = Rig()
    rig.scheduler.add(make_request("a"))
    plan = rig.step()
    rig.scheduler.schedule()
    with pytest.raises(AssertionError, match="step 1 is not the last scheduled"):
        rig.scheduler.commit(plan, StepResult([9]))


def test_usage_counts_blocks_and_slots() -> None:
    rig = Rig(num_blocks=20, choose=always(9))
    rig.scheduler.add(make_request("a", prompt=5, max_tokens=9))
    rig.scheduler.add(make_request("b", prompt=range(11, 19), max_tokens=9))
    rig.step()
    usage = rig.scheduler.usage()
    assert (usage.num_blocks_total, usage.num_blocks_referenced, usage.num_blocks_free) == (
        20,
        4,
        16,
    )
    assert (usage.num_slots_used, usage.num_slots_referenced) == (13, 16)
    assert (usage.num_blocks_cached, usage.num_blocks_saved_by_sharing) == (0, 0)
    assert (usage.num_block_copies, usage.num_preemptions) == (0, 0)
    rig.step()
    assert rig.scheduler.usage().num_slots_used == 15


def test_answers_do_not_depend_on_the_step_budget() -> None:
    for budget in (1, 3, 7, 64):
        rig = Rig(max_num_batched_tokens=budget, max_num_seqs=budget)
        requests = [
            make_request(f"{n}", prompt=range(n, 3 * n + 2), seed=n, max_tokens=12)
            for n in range(9)
        ]
        for request in requests:
            rig.scheduler.add(request)
        rig.run()
        for request in requests:
            rig.check_answer(request)


def test_the_fake_reads_what_the_pages_hold() -> None:
    """The other tests rest on this: a wrong block table gives a failed assertion or another token."""
    rig = Rig(block_size=2)
    rig.scheduler.add(make_request("a", prompt=4, max_tokens=9, ignore_eos=True))
    rig.step()
    plan = rig.scheduler.schedule()
    table = plan.seqs[0].block_table
    table[0], table[1] = table[1], table[0]
    with pytest.raises(AssertionError, match="the pages of sequence 0 hold other tokens"):
        rig.runner.run(plan)


def test_the_oracle_is_not_trivial() -> None:
    request = make_request(prompt=5, max_tokens=40, ignore_eos=True)
    tokens, reason = expected_outputs(request, max_model_len=64, end_token_ids=(0,))[0]
    assert (len(tokens), reason) == (40, LENGTH)
    assert len(set(tokens)) > 15
    assert any(a != b for a, b in pairwise(tokens))
    assert draw(request.prompt_token_ids, 7, 0, ()) == tokens[0]
