"""Steps without a decision, taken at once: the books agree, and the next step goes on as if they had been taken singly."""

from octavo.config import SchedulingPolicy
from octavo.core.step import StepPlan, StepResult
from support.scheduling import Rig, make_request

TOKEN = 7


def step(rig: Rig) -> StepPlan:
    plan = rig.scheduler.schedule()
    rig.scheduler.commit(plan, StepResult([TOKEN] * sum(seq.num_draws for seq in plan.seqs)))
    rig.scheduler.check_integrity()
    return plan


def filled(num_requests: int = 3, *, max_tokens: int = 30, num_blocks: int = 100) -> Rig:
    rig = Rig(num_blocks=num_blocks, end_token_ids=(), prefix_caching=False)
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


def test_skipped_and_single_steps_come_to_the_same() -> None:
    skipped, single = filled(), filled()
    step(skipped)
    step(single)
    steps = skipped.scheduler.steady_decode()
    assert steps is not None
    usage = single.scheduler.usage()
    for number in range(11):
        taken = steps.blocks_taken(number)
        step(single)
        before, usage = usage, single.scheduler.usage()
        assert usage.num_blocks_referenced == before.num_blocks_referenced + taken
    steps.skip(11, TOKEN)
    skipped.scheduler.check_integrity()
    assert skipped.scheduler.usage() == usage
    shapes = [
        [(seq.seq_id, seq.start, list(seq.token_ids)) for seq in step(rig).seqs]
        for rig in (skipped, single)
    ]
    assert shapes[0] == shapes[1]


def test_they_end_where_blocks_run_out() -> None:
    rig = filled(num_blocks=9)
    step(rig)
    steps = rig.scheduler.steady_decode()
    assert steps is not None
    steps.skip(steps.num_steps, TOKEN)
    assert rig.scheduler.usage().num_preemptions == 0
    step(rig)
    assert rig.scheduler.usage().num_preemptions == 1


def test_who_can_enter_is_a_decision() -> None:
    rig = filled()
    step(rig)
    rig.scheduler.add(make_request("late", prompt=4, max_tokens=5))
    assert rig.scheduler.steady_decode() is None


def test_priorities_are_decided_step_by_step() -> None:
    rig = Rig(policy=SchedulingPolicy.PRIORITY, end_token_ids=(), prefix_caching=False)
    rig.scheduler.add(make_request("a", prompt=5, max_tokens=30))
    step(rig)
    assert rig.scheduler.steady_decode() is None
