"""Steps as large as the target allows, on a machine whose costs the governor does not know."""

import random
from dataclasses import dataclass

import pytest

from octavo.core.governor import MIN_CHUNK, Governor, _features
from octavo.core.step import StepPlan
from support.scheduling import Rig, make_request

TARGET_S = 0.06


@dataclass
class Machine:
    """What steps take: a part for the step, each token, each key read, each pair in a chunk; and noise."""

    costs: tuple[float, float, float, float] = (0.02, 4e-4, 2e-6, 4e-7)
    noise: float = 0.05

    def __post_init__(self) -> None:
        self._random = random.Random(1)

    def seconds(self, plan: StepPlan) -> float:
        exact = sum(a * b for a, b in zip(self.costs, _features(plan), strict=True))
        return exact * self._random.uniform(1 - self.noise, 1 + self.noise)


def governed_rig(target_s: float = TARGET_S, governor: Governor | None = None) -> Rig:
    rig = Rig(
        num_blocks=4000,
        block_size=16,
        max_num_batched_tokens=2048,
        max_num_seqs=64,
        max_model_len=4000,
        governor=governor or Governor(target_s),
    )
    for i in range(8):
        prompt = [(i + 3 * j) % 50 for j in range(300)]
        rig.scheduler.add(make_request(f"d{i}", prompt, max_tokens=1000, ignore_eos=True))
    return rig


def steps_of(
    rig: Rig, machine: Machine, count: int, arrivals: int = 0
) -> list[tuple[float, int, int]]:
    """(seconds, tokens, decoding sequences) of steps; now and then a long prompt comes."""
    measured = []
    for step in range(count):
        if arrivals and step % arrivals == arrivals // 2:
            prompt = [(step + 7 * j) % 50 for j in range(2500)]
            rig.scheduler.add(
                make_request(f"p{rig.scheduler._num_steps}", prompt, max_tokens=20, ignore_eos=True)
            )
        plan = rig.scheduler.schedule()
        seconds = machine.seconds(plan)
        num_decoding = sum(len(s.token_ids) == 1 for s in plan.seqs)
        measured.append((seconds, plan.num_tokens, num_decoding))
        rig.scheduler.learn(plan, seconds)
        rig.scheduler.commit(plan, rig.runner.run(plan))
    rig.check()
    return measured


def test_no_prompt_keeps_those_who_decode_waiting_longer_than_the_target() -> None:
    measured = steps_of(governed_rig(), Machine(), 300, arrivals=60)
    decoding = [seconds for seconds, _, num_decoding in measured if num_decoding]
    assert len(decoding) > 290
    too_long = [seconds for seconds in decoding if seconds > TARGET_S]
    assert len(too_long) <= len(decoding) * 0.02
    assert max(decoding) < 1.5 * TARGET_S
    # What the target leaves is used: prompts are not slowed down for nothing.
    mixed = [seconds for seconds, num_tokens, n in measured[60:] if num_tokens > n > 0]
    assert len(mixed) > 50
    assert sorted(mixed)[len(mixed) // 2] > 0.7 * TARGET_S


def test_it_follows_a_machine_that_becomes_slower() -> None:
    rig, machine = governed_rig(2 * TARGET_S), Machine()
    steps_of(rig, machine, 120, arrivals=60)
    machine.costs = (0.03, 8e-4, 4e-6, 8e-7)
    steps_of(rig, machine, 60, arrivals=30)
    later = [seconds for seconds, _, n in steps_of(rig, machine, 120, arrivals=30) if n]
    assert sum(seconds > 2 * TARGET_S for seconds in later) <= len(later) * 0.05


def test_without_it_steps_are_of_the_fixed_size_whatever_they_take() -> None:
    rig = governed_rig()
    rig.scheduler._governor = None
    assert max(seconds for seconds, *_ in steps_of(rig, Machine(), 100, arrivals=40)) > 5 * TARGET_S


def test_where_nobody_decodes_nobody_waits() -> None:
    governor = Governor(0.001)
    assert governor.budget([], 2048) == 2048
    rig = governed_rig(governor=governor)
    plan = rig.scheduler.schedule()
    assert plan.num_tokens == 2048


def test_a_target_that_cannot_be_met_stops_no_prompt() -> None:
    rig = governed_rig(target_s=0.001)
    measured = steps_of(rig, Machine(), 200, arrivals=150)
    mixed = [num_tokens - n for _, num_tokens, n in measured[1:] if num_tokens > n > 0]
    assert mixed and all(tokens in (MIN_CHUNK, mixed[-1]) or tokens <= 64 for tokens in mixed)
    assert MIN_CHUNK in mixed


def test_what_it_learns_is_what_steps_cost() -> None:
    governor = Governor(TARGET_S)
    steps_of(governed_rig(governor=governor), Machine(noise=0.0), 300, arrivals=40)
    fixed, token, _, pair = governor.costs_s
    assert fixed == pytest.approx(0.02, rel=0.1)
    assert token == pytest.approx(4e-4, rel=0.15)
    assert pair == pytest.approx(4e-7, rel=0.3)


@pytest.mark.parametrize("target_s", [0.0, -1.0, float("nan")])
def test_a_target_is_above_nothing(target_s: float) -> None:
    with pytest.raises(ValueError, match="target_s"):
        Governor(target_s)
