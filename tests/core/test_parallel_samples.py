"""n > 1: one prefill, a fork, and copies on write; then every sequence for itself."""

import pytest

from octavo.core.events import RequestEndEvent
from octavo.core.request import FinishReason
from octavo.core.step import BlockCopy, Sample
from support.fake_runner import FakeRunner, RowError
from support.scheduling import Rig, make_request


def test_the_prompt_is_computed_once_and_shared() -> None:
    rig = Rig(num_blocks=64)
    request = make_request("a", prompt=6, n=4, max_tokens=5, ignore_eos=True)
    rig.scheduler.add(request)

    first = rig.step()
    (step,) = first.seqs
    assert [sample.seq_id for sample in step.samples] == [0, 1, 2, 3]
    assert len({sample.seed for sample in step.samples}) == 4
    usage = rig.scheduler.usage()
    assert (usage.num_blocks_referenced, usage.num_blocks_saved_by_sharing) == (2, 6)
    assert usage.num_slots_used == 6

    second = rig.step()
    assert second.copies == (BlockCopy(1, 16), BlockCopy(1, 32), BlockCopy(1, 48))
    tables = [list(step.block_table) for step in second.seqs]
    assert tables == [[0, 16], [0, 32], [0, 48], [0, 1]]  # the last writes in place
    usage = rig.scheduler.usage()
    assert (usage.num_blocks_referenced, usage.num_blocks_saved_by_sharing) == (5, 3)
    assert (usage.num_slots_used, usage.num_block_copies) == (4 + 4 * 3, 3)

    plans = rig.run()
    assert all(plan.copies == () for plan in plans)
    assert isinstance(rig.runner, FakeRunner)
    assert rig.runner.num_tokens == 6 + 4 * 4
    rig.check_answer(request)


def test_a_prompt_of_full_blocks_needs_no_copy() -> None:
    rig = Rig(num_blocks=20)
    request = make_request("a", prompt=8, n=3, max_tokens=3, ignore_eos=True)
    rig.scheduler.add(request)
    plans = rig.run()
    assert all(plan.copies == () for plan in plans)
    rig.check_answer(request)


def test_a_chunked_prompt_is_drawn_from_in_its_last_chunk() -> None:
    rig = Rig(max_num_batched_tokens=8)
    request = make_request("a", prompt=20, n=3, max_tokens=3, prompt_logprobs=0)
    rig.scheduler.add(request)
    assert [len(rig.step().seqs[0].samples) for _ in range(3)] == [0, 0, 3]
    rig.run()
    assert len(rig.log["a"].prompt_logprobs or ()) == 19
    rig.check_answer(request)


def test_a_request_takes_its_seats_from_the_start() -> None:
    rig = Rig(max_num_seqs=4)
    requests = [make_request(name, n=3, max_tokens=4, seed=ord(name)) for name in "abc"]
    for request in requests:
        rig.scheduler.add(request)
    while rig.scheduler.has_work:
        assert len(rig.step().seqs) <= 4
    for request in requests:
        rig.check_answer(request)


@pytest.mark.parametrize("num_blocks", range(3, 16))
def test_sequences_are_preempted_and_computed_again_one_by_one(num_blocks: int) -> None:
    rig = Rig(prefix_caching=False, num_blocks=num_blocks, max_num_batched_tokens=8)
    requests = [
        make_request("a", prompt=6, n=4, max_tokens=7, seed=1),
        make_request("b", prompt=3, n=2, max_tokens=10, seed=2),
    ]
    for request in requests:
        rig.scheduler.add(request)
    rig.run()
    assert (rig.scheduler.usage().num_preemptions > 0) == (num_blocks < 13)
    for request in requests:
        rig.check_answer(request)


def test_sequences_that_end_with_their_first_token_leave_the_others_alone() -> None:
    def choose(history: object, sample: Sample) -> int:
        return 0 if sample.seed == 7 else 9  # the first sequence, which computed the prompt

    rig = Rig(num_blocks=8, choose=choose)
    rig.scheduler.add(make_request("a", prompt=6, n=3, seed=7, max_tokens=3))
    rig.step()
    assert rig.log["a"].finish_reasons == {0: FinishReason.STOP}
    assert rig.log["a"].end is None
    rig.run()
    assert rig.log["a"].token_ids == {0: [0], 1: [9, 9, 9], 2: [9, 9, 9]}


def test_all_end_with_their_first_token() -> None:
    rig = Rig()
    rig.scheduler.add(make_request("a", n=3, max_tokens=1))
    rig.step()
    assert set(rig.log["a"].finish_reasons.values()) <= {FinishReason.LENGTH, FinishReason.STOP}
    assert not rig.scheduler.has_work


@pytest.mark.parametrize("fails_at", [0, 2])
def test_a_failed_row_ends_all_sequences_of_its_request(fails_at: int) -> None:
    def choose(history: object, sample: Sample) -> int:
        if sample.output_index == fails_at and sample.seed != 7:
            raise RowError("no answer")
        return 9

    rig = Rig(choose=choose)
    rig.scheduler.add(make_request("a", n=3, seed=7, max_tokens=6))
    rig.run()
    outcome = rig.log["a"]
    assert outcome.finish_reasons == dict.fromkeys(range(3), FinishReason.ERROR)
    assert outcome.end is not None
    assert (outcome.end.error, outcome.end.error_type) == ("no answer", "RequestFailedError")


@pytest.mark.parametrize("steps", range(5))
def test_abort_ends_every_sequence_once(steps: int) -> None:
    rig = Rig(num_blocks=5, max_num_batched_tokens=4)
    rig.scheduler.add(make_request("a", prompt=6, n=3, max_tokens=9, ignore_eos=True))
    for _ in range(steps):
        rig.step()
    rig.abort("a")
    assert rig.log["a"].finish_reasons == dict.fromkeys(range(3), FinishReason.ABORT)
    rig.check()


def test_one_sequence_is_aborted_and_the_others_go_on() -> None:
    rig = Rig(num_blocks=64)
    request = make_request("a", prompt=6, n=3, max_tokens=9, ignore_eos=True)
    rig.scheduler.add(request)
    for _ in range(4):
        rig.step()
    before = rig.scheduler.usage().num_blocks_referenced
    rig.abort_sequence("a", 1)
    rig.check()
    assert rig.scheduler.usage().num_blocks_referenced < before  # at once
    assert rig.log["a"].finish_reasons == {1: FinishReason.ABORT}
    assert all(len(rig.step().seqs) == 2 for _ in range(3))
    rig.run()
    outcome = rig.log["a"]
    assert {i: len(tokens) for i, tokens in outcome.token_ids.items()} == {0: 9, 1: 4, 2: 9}
    assert outcome.finish_reasons == {
        0: FinishReason.LENGTH,
        1: FinishReason.ABORT,
        2: FinishReason.LENGTH,
    }
    assert outcome.end == RequestEndEvent("a", 6, 0, 0)


def test_the_last_sequence_to_be_aborted_ends_the_request() -> None:
    rig = Rig()
    rig.scheduler.add(make_request("a", n=2, max_tokens=9, ignore_eos=True))
    rig.step()
    for index in (1, 0):
        assert rig.log["a"].end is None
        rig.abort_sequence("a", index)
        rig.abort_sequence("a", index)  # has ended: nothing
    assert rig.log["a"].end == RequestEndEvent("a", 5, 0, 0)
    assert not rig.scheduler.has_work
    rig.check()


def test_a_sequence_without_a_token_is_not_aborted_by_itself() -> None:
    rig = Rig(max_num_batched_tokens=8)
    request = make_request("a", prompt=12, n=2, max_tokens=3, ignore_eos=True)
    rig.scheduler.add(request)
    rig.step()
    for index in range(2):
        rig.abort_sequence("a", index)
    rig.abort_sequence("unknown", 5)
    rig.run()
    rig.check_answer(request)


def test_a_preempted_sequence_is_aborted() -> None:
    rig = Rig(num_blocks=5)
    request = make_request("a", prompt=6, n=2, max_tokens=14, ignore_eos=True)
    rig.scheduler.add(request)
    while not rig.scheduler.usage().num_preemptions:
        rig.step()
    assert rig.scheduler.num_waiting == 1
    rig.abort_sequence("a", 1)
    rig.check()
    assert rig.scheduler.num_waiting == 0
    rig.run()
    assert rig.log["a"].finish_reasons == {0: FinishReason.LENGTH, 1: FinishReason.ABORT}


def test_a_sequence_is_aborted_within_a_step() -> None:
    rig = Rig()
    rig.scheduler.add(make_request("a", n=2, max_tokens=4, ignore_eos=True))
    rig.step()
    rig.step(lambda _: rig.abort_sequence("a", 0))
    rig.run()
    assert {i: len(tokens) for i, tokens in rig.log["a"].token_ids.items()} == {0: 1, 1: 4}
