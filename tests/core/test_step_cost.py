"""What a step costs, counted in Python calls: the same on any machine, however busy."""

import sys
from types import FrameType

from octavo.core.step import StepPlan, StepResult
from support.scheduling import Rig, make_request

NUM_SEQS = 64


def decoding_rig(num_blocks: int) -> Rig:
    rig = Rig(
        num_blocks=num_blocks,
        block_size=16,
        max_num_batched_tokens=2048,
        max_num_seqs=NUM_SEQS,
        max_model_len=2048,
    )
    for number in range(NUM_SEQS):
        rig.scheduler.add(make_request(f"{number}", prompt=10 + number, max_tokens=500))
    return rig


def answer(plan: StepPlan) -> StepResult:
    return StepResult([9] * sum(step.num_draws for step in plan.seqs))


def count_calls(rig: Rig) -> int:
    """Python calls of Octavo in one `schedule` and one `commit`."""
    num_calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal num_calls
        is_ours = str(frame.f_globals.get("__name__")).startswith("octavo.")  # not the collector's
        num_calls += is_ours and event == "call"

    sys.setprofile(profile)
    try:
        plan = rig.scheduler.schedule()
    finally:
        sys.setprofile(None)
    result = answer(plan)
    sys.setprofile(profile)
    try:
        rig.scheduler.commit(plan, result)
    finally:
        sys.setprofile(None)
    return num_calls


def calls_per_decoding_step(num_blocks: int) -> list[int]:
    rig = decoding_rig(num_blocks)
    while rig.scheduler.num_waiting:
        plan = rig.scheduler.schedule()
        rig.scheduler.commit(plan, answer(plan))
    return [count_calls(rig) for _ in range(20)]


def test_a_step_does_not_cost_more_in_a_larger_pool() -> None:
    small, large = calls_per_decoding_step(3_000), calls_per_decoding_step(1_000_000)
    assert small == large
    assert max(small) < 40 * NUM_SEQS
