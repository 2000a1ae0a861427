"""A preempted sequence computes its tokens again, draws none of them again, and answers as if nothing had been.

Without the prefix cache, which would spare most of this.
"""

import random

import pytest

from octavo.config import SchedulingPolicy
from octavo.core.request import Request
from support.scheduling import Rig, make_request


def two_that_do_not_fit_together(**rest: object) -> tuple[Rig, list[Request]]:
    """Each needs 4 of 5 blocks in the end; both are admitted with 1."""
    rig = Rig(prefix_caching=False, num_blocks=5, block_size=4, **rest)  # type: ignore[arg-type]
    requests = [
        make_request(name, prompt=3, seed=ord(name), max_tokens=13, ignore_eos=True)
        for name in "ab"
    ]
    for request in requests:
        rig.scheduler.add(request)
    return rig, requests


def test_the_latest_arrival_gives_way_and_comes_back() -> None:
    rig, (first, second) = two_that_do_not_fit_together()
    plans = rig.run()
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    assert rig.scheduler.usage().num_preemptions == 1
    rig.check_answer(first)
    rig.check_answer(second)

    steps = [step for plan in plans for step in plan.seqs if step.seq_id == 1]
    again = next(step for step in steps[1:] if step.start == 0)
    num_outputs = len(again.token_ids) - 3
    assert num_outputs == 6  # 3 + 6 tokens do not fit 2 blocks; the other had just taken its third
    (sample,) = again.samples  # one for the last known token, none for those drawn before
    assert (sample.output_index, len(sample.token_ids)) == (num_outputs, 3 + num_outputs)
    assert [s.output_index for step in steps for s in step.samples] == list(range(13))


def test_known_tokens_are_computed_again_in_chunks() -> None:
    rig, requests = two_that_do_not_fit_together(max_num_batched_tokens=4, max_num_seqs=4)
    plans = rig.run()
    steps = [step for plan in plans for step in plan.seqs if step.seq_id == 1]
    chunks = [(step.start, len(step.token_ids), len(step.samples)) for step in steps]
    assert chunks[7:11] == [(0, 4, 0), (4, 4, 0), (8, 1, 1), (9, 1, 1)]
    for request in requests:
        rig.check_answer(request)


def test_preempted_sequences_keep_their_place() -> None:
    rig = Rig(prefix_caching=False, num_blocks=6, block_size=4, max_num_seqs=3)
    names = "abcdef"
    for name in names:
        rig.scheduler.add(make_request(name, prompt=4, max_tokens=9, ignore_eos=True))
    rig.run()
    assert rig.scheduler.usage().num_preemptions > 0
    assert rig.log.ended == list(names)


def test_prompt_logprobs_are_kept_and_not_asked_for_again() -> None:
    """Preempted in the middle of its prompt; computed again in chunks of another length."""
    rig = Rig(
        prefix_caching=False,
        num_blocks=10,
        block_size=4,
        max_num_batched_tokens=7,
        policy=SchedulingPolicy.PRIORITY,
    )
    rig.scheduler.add(make_request("tiny", prompt=1, priority=1, max_tokens=4))
    low = make_request("low", prompt=30, priority=1, max_tokens=2, prompt_logprobs=1)
    rig.scheduler.add(low)
    plans = [rig.step(), rig.step()]
    rig.scheduler.add(make_request("high", prompt=17, priority=0, max_tokens=2))
    plans += rig.run()
    steps = [step for plan in plans for step in plan.seqs if step.seq_id == 1]
    assert [step.start for step in steps[:6]] == [0, 6, 0, 7, 12, 19]
    assert [len(step.prompt_targets) for step in steps[:6]] == [6, 6, 0, 0, 7, 7]
    assert [token for step in steps for token in step.prompt_targets] == list(range(2, 31))
    values = rig.log["low"].prompt_logprobs
    assert values is not None
    assert [value.token_id for value in values] == list(range(2, 31))
    rig.check_answer(low)


def test_priority_takes_blocks_from_worse_classes_only_if_that_lets_it_in() -> None:
    rig = Rig(prefix_caching=False, num_blocks=10, block_size=4, policy=SchedulingPolicy.PRIORITY)
    same = make_request("same", prompt=20, priority=0, max_tokens=4, ignore_eos=True)
    low = make_request("low", prompt=8, priority=1, max_tokens=20, ignore_eos=True)
    rig.scheduler.add(same)
    rig.scheduler.add(low)
    rig.step()
    too_big = make_request("big", prompt=30, priority=0, max_tokens=2, ignore_eos=True)
    rig.scheduler.add(too_big)
    rig.step()
    assert low.num_preemptions == 0  # 10 - 6 blocks would not be enough for 8
    while "same" not in rig.log.ended:
        rig.step()
    rig.step()
    assert low.num_preemptions == 1
    rig.run()
    assert rig.log.ended == ["same", "big", "low"]
    for request in (same, low, too_big):
        rig.check_answer(request)


def test_priority_takes_a_seat() -> None:
    rig = Rig(prefix_caching=False, max_num_seqs=2, policy=SchedulingPolicy.PRIORITY)
    lows = [make_request(name, priority=1, max_tokens=9, ignore_eos=True) for name in "ab"]
    for request in lows:
        rig.scheduler.add(request)
    rig.step()
    rig.scheduler.add(make_request("high", priority=0, max_tokens=3, ignore_eos=True))
    rig.run()
    assert rig.log.ended == ["high", "a", "b"]
    assert [request.num_preemptions for request in lows] == [0, 1]


def play_r15(rng: random.Random) -> int:
    """Four low-priority decoders, all about to need a block; then better classes arrive in any order.

    Returns the number of steps it took.
    """
    rig = Rig(
        prefix_caching=False,
        num_blocks=rng.randint(11, 14),
        block_size=4,
        max_num_seqs=4,
        policy=SchedulingPolicy.PRIORITY,
    )
    lows = [
        make_request(f"low{n}", prompt=8, seed=n, priority=2, max_tokens=36, ignore_eos=True)
        for n in range(4)
    ]
    for request in lows:
        rig.scheduler.add(request)
    rig.step()
    assert [low.sequences[0].num_computed for low in lows] == [8, 8, 8, 8]
    num_steps = 1
    classes = [0, 0, 0, 1, 1, 1]
    rng.shuffle(classes)
    arrivals: dict[int, list[Request]] = {0: [], 1: [], 2: lows}
    for number, priority in enumerate(classes):
        high = make_request(
            f"high{number}", prompt=5, seed=number, priority=priority, max_tokens=4, ignore_eos=True
        )
        arrivals[priority].append(high)
        rig.scheduler.add(high)
        for _ in range(rng.choice([0, 0, 1, 2])):
            rig.step()
            num_steps += 1
    num_steps += len(rig.run())

    assert set(rig.log.ended[6:]) == {low.request_id for low in lows}
    assert sum(low.num_preemptions for low in lows) > 0
    for priority, requests in arrivals.items():
        names = [request.request_id for request in requests]
        assert [name for name in rig.log.ended if name in names] == names
        if priority == 0:
            assert all(request.num_preemptions == 0 for request in requests)
        for request in requests:
            rig.check_answer(request)
    return num_steps


def play_r15_for(num_steps: int) -> None:
    rng = random.Random(15)
    while num_steps > 0:
        num_steps -= play_r15(rng)


def test_better_classes_first_and_nobody_planned_and_preempted() -> None:
    play_r15_for(1_000)


@pytest.mark.long
def test_better_classes_first_and_nobody_planned_and_preempted_long() -> None:
    play_r15_for(10_000)
