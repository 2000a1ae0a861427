"""Steps without a decision, taken at once: tables, cache and books are as if they had been taken singly."""

import pytest

from octavo.config import SchedulingPolicy
from octavo.core.step import SeqId, StepPlan, StepResult
from support.scheduling import Rig, make_request

COUNT = 11


def token_of(seq_id: SeqId) -> int:
    return 100 + seq_id


def step(rig: Rig) -> StepPlan:
    plan = rig.scheduler.schedule()
    tokens = [token_of(sampling.seq_id) for seq in plan.seqs for sampling in seq.sampling]
    rig.scheduler.commit(plan, StepResult(tokens))
    rig.scheduler.check_integrity()
    return plan


def filled(
    num_requests: int = 3,
    *,
    max_tokens: int = 30,
    num_blocks: int = 100,
    prefix_caching: bool = False,
) -> Rig:
    rig = Rig(num_blocks=num_blocks, end_token_ids=(), prefix_caching=prefix_caching)
    for number in range(num_requests):
        rig.scheduler.add(make_request(f"{number}", prompt=5 + number, max_tokens=max_tokens))
    return rig


def test_prompts_are_a_decision_and_decoding_is_none() -> None:
    rig = filled()
    assert rig.scheduler.steady_decode() is None
    step(rig)
    steps = rig.scheduler.steady_decode()
    assert steps is not None
    assert steps.num_steps == 28, "one token is drawn, and the last ends the requests"


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_skipped_and_single_steps_come_to_the_same(prefix_caching: bool) -> None:
    skipped, single = (filled(prefix_caching=prefix_caching) for _ in range(2))
    while (steps := skipped.scheduler.steady_decode()) is None:
        step(skipped)
        step(single)
    usage = single.scheduler.usage()
    for number in range(COUNT):
        taken = steps.blocks_taken(number)
        step(single)
        before, usage = usage, single.scheduler.usage()
        assert usage.num_blocks_referenced == before.num_blocks_referenced + taken
    steps.skip(COUNT, token_of)
    skipped.scheduler.check_integrity()
    assert skipped.scheduler.usage() == usage
    assert whole(step(skipped)) == whole(step(single))


def test_the_same_blocks_are_evicted() -> None:
    """What an ended request has left in the cache goes block by block, in the order of single steps."""
    rigs = [filled(4, max_tokens=40, num_blocks=44, prefix_caching=True) for _ in range(2)]
    for rig in rigs:
        rig.scheduler.add(make_request("short", prompt=30, max_tokens=2))
        while rig.scheduler.num_running < 5:
            step(rig)
        while (steps := rig.scheduler.steady_decode()) is None or rig.scheduler.num_running == 5:
            step(rig)
        if rig is rigs[0]:
            steps.skip(steps.num_steps, token_of)
            count = steps.num_steps
        else:
            for _ in range(count):
                step(rig)
    assert rigs[0].scheduler.usage() == rigs[1].scheduler.usage()
    assert rigs[0].tables.num_evicted > 0
    assert rigs[0].tables.cached_blocks() == rigs[1].tables.cached_blocks()
    assert whole(step(rigs[0])) == whole(step(rigs[1]))


def whole(plan: StepPlan) -> list[object]:
    return [(s.seq_id, s.start, list(s.token_ids), list(s.block_table)) for s in plan.seqs]


def test_they_end_where_blocks_run_out() -> None:
    rig = filled(num_blocks=9)
    step(rig)
    steps = rig.scheduler.steady_decode()
    assert steps is not None
    steps.skip(steps.num_steps, token_of)
    assert rig.scheduler.usage().num_preemptions == 0
    step(rig)
    assert rig.scheduler.usage().num_preemptions == 1


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_who_can_enter_is_a_decision(prefix_caching: bool) -> None:
    rig = filled(prefix_caching=prefix_caching)
    while rig.scheduler.steady_decode() is None:
        step(rig)
    rig.scheduler.add(make_request("late", prompt=4, max_tokens=5))
    assert rig.scheduler.steady_decode() is None


def test_priorities_are_decided_step_by_step() -> None:
    rig = Rig(policy=SchedulingPolicy.PRIORITY, end_token_ids=(), prefix_caching=False)
    rig.scheduler.add(make_request("a", prompt=5, max_tokens=30))
    step(rig)
    assert rig.scheduler.steady_decode() is None
