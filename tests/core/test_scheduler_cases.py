"""Faults of schedulers that users of other engines met (known failures R05, R15)."""

import random

import pytest

from octavo.config import SchedulingPolicy
from octavo.core.costs import RestoreCosts
from octavo.core.request import Request
from octavo.core.sequence import SequenceStatus
from support.scheduling import Rig, make_request

PREFIX = [(3 * i) % 50 for i in range(24)]


def test_r05_blocks_of_a_request_that_was_aborted_before_it_ran_are_not_found() -> None:
    rig = Rig(max_num_batched_tokens=64)
    rig.scheduler.add(make_request("a", [*PREFIX, 1], max_tokens=4))
    plan = rig.scheduler.schedule()
    rig.abort("a")
    other = make_request("b", [*PREFIX, 2], max_tokens=4)
    rig.scheduler.add(other)
    rig.log.add(rig.scheduler.commit(plan, rig.runner.run(plan)))
    rig.run()
    rig.check_answer(other)
    assert other.num_cached_tokens == 0
    # Between steps, and both in one step.
    third = make_request("c", [*PREFIX[::-1], 1], max_tokens=4)
    fourth = make_request("d", [*PREFIX[::-1], 2], max_tokens=4)
    rig.scheduler.add(third)
    rig.scheduler.add(fourth)
    rig.run()
    rig.check_answer(third)
    rig.check_answer(fourth)
    assert third.num_cached_tokens == 0


def random_arrivals(num_steps: int) -> None:
    draw = random.Random(5)
    rig = Rig(
        num_blocks=16, block_size=4, max_num_seqs=4, max_num_batched_tokens=16,
        max_model_len=40, policy=SchedulingPolicy.PRIORITY,
    )  # fmt: skip
    requests: list[Request] = []
    for step in range(num_steps):
        if draw.random() < 0.25 and rig.scheduler.num_waiting < 8:
            urgent = draw.random() < 0.3
            request = make_request(
                f"r{step}",
                [(step + 7 * i) % 50 for i in range(draw.randrange(1, 12))],
                priority=-1 if urgent else 1,
                max_tokens=draw.randrange(1, 24),
                ignore_eos=True,
            )
            rig.scheduler.add(request)
            requests.append(request)
        if not rig.scheduler.has_work:
            continue

        plan = rig.step()
        assert len({planned.seq_id for planned in plan.seqs}) == len(plan.seqs) <= 4
        running = [s for r in requests for s in r.sequences if s.status is SequenceStatus.RUNNING]
        waiting = [s for s in rig.scheduler._waiting if s.num_lost]
        # Who was preempted gave way to others of a better class, or for its own class to grow.
        assert all(s.rank >= min((r.rank for r in running), default=s.rank) for s in waiting)
        for ended in [request for request in requests if request.is_finished]:
            rig.check_answer(ended)
            requests.remove(ended)
    rig.run()
    for request in requests:
        rig.check_answer(request)
    assert rig.scheduler.usage().num_preemptions > num_steps // 50


def test_r15_priorities_preempt_within_a_step() -> None:
    random_arrivals(1_500)


@pytest.mark.long
def test_r15_priorities_preempt_within_a_step_long() -> None:
    random_arrivals(10_000)


def test_who_was_let_in_is_not_preempted_in_the_same_step() -> None:
    """Its pages are on their way. Whoever is of a better class is looked at before, also if its turn had not come."""
    rig = Rig(
        num_blocks=10, block_size=4, max_num_seqs=4, policy=SchedulingPolicy.PRIORITY,
        num_swap_slots=20, costs=RestoreCosts(token=1e6, page_out=0.1, page_in=0.1),
        prefix_caching=False,
    )  # fmt: skip
    low = make_request("low", [5] * 16, priority=2, max_tokens=12, ignore_eos=True)
    rig.scheduler.add(low)
    rig.step()
    high = make_request("high", [6] * 30, priority=0, max_tokens=4, ignore_eos=True)
    rig.scheduler.add(high)
    while low.num_preemptions == 0:
        rig.step()
    small = make_request("small", [7] * 8, priority=0, max_tokens=2, ignore_eos=True)
    rig.scheduler.add(small)
    rig.step()
    middle = make_request("middle", [8] * 24, priority=1, max_tokens=2, ignore_eos=True)
    rig.scheduler.add(middle)
    rig.run()
    assert rig.scheduler.usage().num_blocks_swapped_in > 0
    assert low.num_preemptions == 1
    assert rig.log.ended == ["high", "small", "middle", "low"]
    for request in (low, high, small, middle):
        rig.check_answer(request)


def test_r15_a_better_class_ends_first_and_equal_ones_in_order() -> None:
    rig = Rig(num_blocks=8, block_size=4, max_num_seqs=4, policy=SchedulingPolicy.PRIORITY)
    slow = [
        make_request(f"s{i}", [i, 1, 2], priority=1, max_tokens=9, ignore_eos=True)
        for i in range(4)
    ]
    for request in slow:
        rig.scheduler.add(request)
    rig.step()
    urgent = make_request("u", [9] * 8, priority=0, max_tokens=5, ignore_eos=True)
    rig.scheduler.add(urgent)
    ended: list[str] = []
    while rig.scheduler.has_work:
        rig.step()
        ended += [
            r.request_id for r in (urgent, *slow) if r.is_finished and r.request_id not in ended
        ]
    assert ended == ["u", "s0", "s1", "s2", "s3"]
    for request in (*slow, urgent):
        rig.check_answer(request)
