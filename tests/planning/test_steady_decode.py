"""Steps taken at once leave the same records as steps taken one by one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import SchedulerConfig
from octavo.planning.figures import figures_of
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.setups import MachineSetup, Policy
from octavo.planning.workloads import Lengths, Population, make_requests
from support.planning import SETUP


def records(recorder: Recorder) -> object:
    """Everything that a recorder holds, as values."""
    served = [(s.request.request_id, s.first_token_s, s.end_s) for s in recorder.served.values()]
    pauses = list(zip(recorder.pauses, recorder.pause_counts, strict=True))
    return served, pauses, recorder.timeline.moments, figures_of([recorder])


def both(setup: MachineSetup, requests: list[SimRequest]) -> tuple[Recorder, Recorder]:
    return setup.run(requests), setup.run(requests, fast_forward=False)


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("rate", [0.5, 4.0, 40.0])
def test_records_are_the_same(policy: Policy, rate: float) -> None:
    people = Population(Lengths(60, 1.1), Lengths(80, 0.9))
    requests = make_requests(people, rate, 60, max_model_len=512, seed=3)
    fast, slow = both(replace(SETUP, policy=policy), requests)
    assert records(fast) == records(slow)


@pytest.mark.parametrize("rate", [0.5, 4.0, 40.0])
def test_records_are_the_same_with_a_cache_of_prefixes(rate: float) -> None:
    people = Population(
        Lengths(30, 1.1), Lengths(60, 0.9), prefix_len=50, num_prefixes=6, turns=3, pause_s=1.0
    )
    requests = make_requests(people, rate, 40, max_model_len=512, seed=3)
    fast, slow = both(replace(SETUP, num_slots=1024, prefix_caching=True), requests)
    assert records(fast) == records(slow)
    assert fast.counts.num_cached_tokens > 0


@settings(deadline=None, max_examples=60)
@given(
    num_blocks=st.integers(32, 90),
    block_size=st.sampled_from([1, 3, 8, 16]),
    max_num_seqs=st.integers(3, 12),
    budget=st.integers(12, 200),
    n=st.integers(1, 3),
    turns=st.integers(1, 2),
    prefix_len=st.integers(0, 20),
    seed=st.integers(0, 1000),
)
def test_records_are_the_same_when_pages_run_out(
    num_blocks: int,
    block_size: int,
    max_num_seqs: int,
    budget: int,
    n: int,
    turns: int,
    prefix_len: int,
    seed: int,
) -> None:
    setup = replace(
        SETUP,
        num_slots=num_blocks * block_size,
        max_model_len=min(64, num_blocks * block_size),
        block_size=block_size,
        limits=SchedulerConfig(budget, max_num_seqs),
        prefix_caching=prefix_len > 0,
    )
    people = Population(
        Lengths(10, 1.0),
        Lengths(12, 0.8),
        n=n,
        prefix_len=prefix_len,
        num_prefixes=2,
        turns=turns,
        pause_s=0.2,
    )
    requests = make_requests(people, 20.0, 25, max_model_len=setup.max_model_len, seed=seed)
    fast, slow = both(setup, requests)
    assert records(fast) == records(slow)


def test_most_steps_are_taken_at_once() -> None:
    """Else nothing above would be worth anything."""
    requests = make_requests(
        Population(Lengths(60), Lengths(400)), 0.5, 10, max_model_len=512, seed=1
    )
    machine = SETUP.machine()
    decided = 0
    step = machine.batcher.step

    def counted() -> object:
        nonlocal decided
        decided += 1
        return step()

    machine.batcher.step = counted  # type: ignore[method-assign, assignment]
    for request in requests:
        machine.offer(request)
    machine.run()
    assert machine.recorder.num_steps > 20 * decided
