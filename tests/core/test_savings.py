"""What sharing saves, in pages and computed tokens, as arithmetic predicts; and what finding costs, in calls."""

import sys
from types import FrameType
from typing import Any

import pytest

from octavo.core.request import Request
from support.scheduling import Rig, make_request

PROMPT, OUTPUT, B = 1000, 128, 16


def large_rig(**options: object) -> Rig:
    defaults: dict[str, object] = {
        "num_blocks": 4000,
        "block_size": B,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 64,
        "max_model_len": 2000,
    }
    return Rig(**(defaults | options))  # type: ignore[arg-type]


def run(rig: Rig, requests: list[Request]) -> tuple[int, int]:
    """(tokens computed, most pages referenced)"""
    for request in requests:
        rig.scheduler.add(request)
    num_tokens = peak = 0
    while rig.scheduler.has_work:
        plan = rig.scheduler.schedule()
        num_tokens += plan.num_tokens
        peak = max(peak, rig.scheduler.usage().num_blocks_referenced)
        rig.log.add(rig.scheduler.commit(plan, rig.runner.run(plan)))
    rig.check()
    return num_tokens, peak


@pytest.mark.parametrize("n", [2, 4, 6, 8])
def test_parallel_samples_hold_the_prompt_once(n: int) -> None:
    options: dict[str, Any] = {"max_tokens": OUTPUT, "ignore_eos": True}
    together = run(large_rig(), [make_request("a", prompt=PROMPT, n=n, **options)])
    requests = [make_request(f"{i}", prompt=PROMPT, seed=i, **options) for i in range(n)]
    apart = run(large_rig(prefix_caching=False), requests)
    num_steps = OUTPUT - 1
    assert together[0] == PROMPT + n * num_steps
    assert apart[0] == n * (PROMPT + num_steps)
    total = -(-(PROMPT + num_steps) // B)
    full = PROMPT // B
    assert together[1] == full + n * (total - full)
    assert apart[1] == n * total
    if n == 8:
        assert apart[1] >= 4 * together[1]


def test_clients_with_the_same_instructions_compute_them_once_even_at_once() -> None:
    system = [(7 * position) % 50 for position in range(PROMPT)]
    requests = [
        make_request(
            f"{i}",
            prompt=[*system, *((i + 3 * j) % 50 for j in range(30))],
            max_tokens=32,
            ignore_eos=True,
            seed=i,
        )
        for i in range(32)
    ]
    num_tokens, peak = run(large_rig(), requests)
    # Also what is common of the page in which they part: it is copied.
    assert num_tokens == PROMPT + 32 * (30 + 31)
    pages_each = -(-(PROMPT + 30 + 31) // B) - PROMPT // B
    assert peak <= PROMPT // B + 32 * pages_each
    assert [request.num_cached_tokens for request in requests] == [0] + [PROMPT] * 31


def calls_to_admit(num_blocks: int, prompt_len: int, *, is_cached: bool) -> int:
    """Python calls of Octavo in the `schedule` that lets in a prompt."""
    rig = large_rig(num_blocks=num_blocks, max_num_batched_tokens=20_000, max_model_len=20_000)
    prompt = [(7 * position) % 50 for position in range(prompt_len)]
    if is_cached:
        rig.scheduler.add(make_request("a", prompt=prompt, max_tokens=1))
        plan = rig.scheduler.schedule()
        rig.scheduler.commit(plan, rig.runner.run(plan))
    rig.scheduler.add(make_request("b", prompt=prompt, max_tokens=1))
    num_calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal num_calls
        is_ours = str(frame.f_globals.get("__name__")).startswith("octavo.")
        num_calls += is_ours and event == "call"

    sys.setprofile(profile)
    try:
        plan = rig.scheduler.schedule()
    finally:
        sys.setprofile(None)
    assert plan.num_tokens == (1 if is_cached else prompt_len)
    return num_calls


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_prompt_costs_a_few_calls_a_page_in_a_pool_of_any_size(is_cached: bool) -> None:
    small = calls_to_admit(2_000, 10_000, is_cached=is_cached)
    assert calls_to_admit(1_000_000, 10_000, is_cached=is_cached) == small
    assert small < 15 * 10_000 // B
