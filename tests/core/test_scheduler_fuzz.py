"""Random mixes of requests that come while others run, in pools down to the smallest that can hold the longest of them.

Whatever the pool, the other tiers and the costs are: all that is accepted ends, in a number of steps that has a bound.
"""

import random
from array import array

import pytest

from octavo.config import SchedulingPolicy
from octavo.core.costs import RestoreCosts
from octavo.core.request import Request
from support.fake_runner import FakeRunner
from support.scheduling import Rig, make_request

MAX_MODEL_LEN = 60


def mix(rng: random.Random) -> list[Request]:
    """Some share a beginning, some are long, some are many."""
    shared = [rng.randrange(1, 50) for _ in range(30)]
    requests = []
    for number in range(rng.randrange(1, 14)):
        own = [rng.randrange(1, 50) for _ in range(rng.choice([1, 3, 12]))]
        prompt = [*shared[: rng.choice([0, 0, 7, 16, 30])], *own]
        most = rng.randrange(1, MAX_MODEL_LEN - len(prompt) + 1)
        requests.append(
            make_request(
                f"{number}",
                prompt,
                seed=number,
                priority=rng.randrange(3),
                n=rng.choice([1, 1, 1, 2, 4]),
                max_tokens=most,
                ignore_eos=rng.random() < 0.8,
                prompt_logprobs=rng.choice([None, None, None, 0]),
            )
        )
    return requests


def longest(request: Request) -> int:
    return request.prompt_len + (request.params.max_tokens or 0) - 1


def rig_for(rng: random.Random, requests: list[Request]) -> Rig:
    block_size = rng.choice([1, 2, 4, 16])
    smallest = -(-max(map(longest, requests)) // block_size)
    num_blocks = smallest + rng.choice([0, 0, 1, 3, smallest, 5 * smallest])
    stored: dict[bytes, array[int]] | None = rng.choice([None, {}])
    failures = rng.choice([0.0, 0.0, 0.5])
    return Rig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_batched_tokens=rng.choice([4, 16, 200]),
        max_num_seqs=4,
        max_model_len=MAX_MODEL_LEN,
        policy=rng.choice(list(SchedulingPolicy)),
        prefix_caching=rng.random() < 0.7,
        costs=RestoreCosts(
            rng.choice([None, 1.0]), rng.choice([None, 0.01, 10.0]), rng.choice([0.01, 10.0])
        ),
        num_swap_slots=rng.choice([0, 2, smallest, 50]),
        stored=stored,
        runner=FakeRunner(
            num_blocks, block_size, stored=stored, fails=lambda: rng.random() < failures
        ),
    )


def play(seed: int) -> None:
    rng = random.Random(seed)
    requests = mix(rng)
    rig = rig_for(rng, requests)
    for request in requests:
        rig.scheduler.add(request)
        for _ in range(rng.choice([0, 0, 1, 5])):
            rig.step()
    num_tokens = sum(longest(request) * request.params.n for request in requests)
    # One after another, computing all anew after every token, would take fewer.
    rig.run(max_steps=20 * num_tokens + 100)
    for request in requests:
        rig.check_answer(request)


def test_all_that_is_accepted_ends() -> None:
    for seed in range(150):
        play(seed)


@pytest.mark.long
def test_all_that_is_accepted_ends_long() -> None:
    for seed in range(1_000, 6_000):
        play(seed)
