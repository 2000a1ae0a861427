"""The simulated machine against closed forms, and against the real engine."""

import math
from array import array
from dataclasses import replace

import pytest

from octavo.config import BLOCK_SIZES, SchedulerConfig
from octavo.errors import CapacityError
from octavo.planning.figures import figures_of, weighted_spread
from octavo.planning.requests import NextTurn, SimRequest
from octavo.planning.setups import Policy
from octavo.planning.swapping import PageTraffic, SwapDisk
from octavo.planning.work import StepWork
from octavo.planning.workloads import Lengths, Population, make_requests, population
from support.planning import COSTS, MODEL, SETUP


def request(
    name: str, arrival_s: float, prompt_len: int, output_len: int, n: int = 1
) -> SimRequest:
    return SimRequest(name, arrival_s, array("i", range(prompt_len)), output_len, n)


def test_a_request_alone_takes_the_time_of_its_steps() -> None:
    recorder = SETUP.run([request("a", 5.0, 100, 20)])
    layers = MODEL.span.num_layers
    prompt = COSTS.seconds(StepWork(100, 1, 100 * layers, 100 * 101 // 2 * layers))
    decodes = [COSTS.seconds(StepWork(1, 1, k * layers, k * layers)) for k in range(101, 120)]
    served = recorder.served["a"]
    assert served.first_token_s == pytest.approx(5.0 + prompt, rel=1e-12)
    assert served.end_s == pytest.approx(5.0 + prompt + math.fsum(decodes), rel=1e-12)
    figures = figures_of([recorder])
    assert figures.num_steps == 20
    assert figures.mean_batch == pytest.approx(1.0)
    assert figures.e2e_s is not None and figures.normalized_latency_s is not None
    assert figures.normalized_latency_s.mean == pytest.approx(figures.e2e_s.mean / 20)


def test_the_first_step_after_nothing_takes_longer() -> None:
    requests = [request("a", 0.0, 50, 3), request("b", 60.0, 50, 3), request("c", 60.0, 50, 3)]
    sleepy = replace(SETUP, costs=replace(COSTS, wake_s=0.25))
    ends, later = (
        [s.end_s or 0 for s in setup.run(requests).served.values()] for setup in (SETUP, sleepy)
    )
    assert [b - a for a, b in zip(ends, later, strict=True)] == pytest.approx([0.25] * 3)


def test_a_request_that_comes_during_a_step_waits_for_its_end() -> None:
    alone = SETUP.run([request("a", 0.0, 200, 1)]).end_s
    recorder = SETUP.run([request("a", 0.0, 200, 1), request("b", alone / 2, 200, 1)])
    assert recorder.served["b"].end_s == pytest.approx(2 * alone)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_half_a_page_of_each_sequence_is_empty(block_size: int) -> None:
    """Over all lengths a sequence's last page is half full: the waste is (B - 1) / 2 slots each."""
    setup = replace(SETUP, block_size=block_size, num_slots=64 * 1024)
    people = Population(Lengths(100, 0.5), Lengths(256))
    recorder = setup.run(make_requests(people, 1.0, 60, max_model_len=512, seed=2))
    empty_slots = recorder.memory_seconds[2] / recorder.request_seconds
    assert empty_slots == pytest.approx((block_size - 1) / 2, rel=0.1)


def test_the_parts_of_the_memory_are_all_of_it() -> None:
    requests = make_requests(population("alpaca"), 30.0, 60, max_model_len=512)
    for policy in Policy:
        recorder = replace(SETUP, policy=policy).run(requests)
        for moment in recorder.timeline.moments:
            assert sum(moment.memory[:5]) == SETUP.num_slots, policy
            assert min(moment.memory) >= 0, policy


def test_reservations_hold_what_they_are_named_after() -> None:
    moment = {
        policy: replace(SETUP, policy=policy)
        .run([request("a", 0.0, 100, 25)])
        .timeline.moments[0]
        .memory
        for policy in (Policy.MAX, Policy.POW2, Policy.ORACLE)
    }
    assert [sum(moment[p][:3]) for p in moment] == [512, 100 + 32, 100 + 25]
    assert moment[Policy.ORACLE].external == 128 - 125
    assert all(memory.tokens == 100 for memory in moment.values())


def test_a_static_batch_answers_together() -> None:
    requests = [request("a", 0.0, 10, 5), request("b", 0.0, 10, 50), request("c", 0.01, 10, 5)]
    served = replace(SETUP, policy=Policy.STATIC).run(requests).served
    assert served["a"].end_s == served["b"].end_s
    assert served["c"].first_token_s is not None and served["b"].end_s is not None
    assert served["c"].first_token_s > served["b"].end_s


@pytest.mark.parametrize("policy", list(Policy))
def test_what_can_never_run_is_refused(policy: Policy) -> None:
    setup = replace(SETUP, policy=policy, num_slots=512)
    with pytest.raises(CapacityError):
        setup.run([request("a", 0.0, 400, 113)])


def test_a_conversation_goes_on_where_it_ended() -> None:
    turn = NextTurn(array("i", [7, 8]), 3, 1.5)
    first = replace(request("a", 0.0, 10, 4), next_turn=turn)
    served = SETUP.run([first]).served
    later = served["a+"].request
    assert later.token_ids == first.token_ids + first.answer(0) + turn.token_ids
    assert later.arrival_s == pytest.approx((served["a"].end_s or 0) + 1.5)


def test_a_conversation_finds_its_beginning_in_the_cache() -> None:
    """All of the last turn but its last token, which was drawn and never computed."""
    turn = NextTurn(array("i", [7, 8]), 3, 1.5)
    first = replace(request("a", 0.0, 100, 40), next_turn=turn)
    counts = replace(SETUP, prefix_caching=True).run([first]).counts
    assert (counts.num_prompt_tokens, counts.num_cached_tokens) == (100 + 142, 139)


def test_answers_to_one_prompt_share_the_prompt_alone() -> None:
    setup = replace(SETUP, prefix_caching=True, num_slots=1024)
    recorder = setup.run([request("a", 0.0, 160, 160, n=3)])
    shared = 2 * 160 / (3 * (160 + 80))
    assert figures_of([recorder]).memory_saved == pytest.approx(shared, rel=0.05)


@pytest.mark.parametrize("num_pages", [0, 1, 1000])
def test_r09_a_group_larger_than_the_pool_ends_whatever_the_swap_space(num_pages: int) -> None:
    """Four times the pool, with others behind it; a page costs less to move than to compute."""
    page_bytes = SETUP.page_bytes
    disk = SwapDisk(num_pages * page_bytes, 2e9) if num_pages else None
    requests = [
        request("big", 0.0, 100, 400, n=16),
        *(request(f"{i}", 1.0, 40, 20) for i in range(6)),
    ]
    recorder = replace(SETUP, swap=disk).run(requests)
    figures = figures_of([recorder])
    assert (figures.num_ended, figures.num_output_tokens) == (7, 16 * 400 + 6 * 20)
    assert figures.num_preemptions > 0
    assert (figures.num_swaps > 0) == (num_pages == 1000)
    if num_pages == 1000:
        assert figures.duration_s < figures_of([SETUP.run(requests)]).duration_s


def test_preempted_sequences_take_the_way_that_the_disk_makes_the_cheapest() -> None:
    requests = [request("big", 0.0, 100, 400, n=16)]
    swaps = {}
    for bytes_per_s in (1e5, 1e10):
        setup = replace(SETUP, swap=SwapDisk(1 << 30, bytes_per_s))
        swaps[bytes_per_s] = setup.run(requests).counts.num_swaps
    assert swaps[1e5] == 0 < swaps[1e10]


def test_a_step_waits_for_the_pages_that_it_reads_and_for_those_before_them() -> None:
    traffic = PageTraffic(2.0)
    assert traffic.end_of_step(10.0, 13.0, 3, 0) == 13.0  # written until 16
    assert traffic.end_of_step(13.0, 14.0, 0, 0) == 14.0
    assert traffic.end_of_step(14.0, 15.0, 0, 1) == 18.0
    assert traffic.end_of_step(20.0, 29.0, 1, 2) == 29.0


def test_the_same_seed_gives_the_same_run() -> None:
    def figures(seed: int) -> object:
        requests = make_requests(population("sharegpt"), 3.0, 40, max_model_len=512, seed=seed)
        return figures_of([SETUP.run(requests)])

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_a_target_of_latency_keeps_steps_short() -> None:
    """Prompts of 400 tokens come while others decode, whose pauses are longer than the target without one."""
    requests = make_requests(Population(Lengths(400), Lengths(60)), 2.0, 60, max_model_len=512)
    p99 = {}
    for target_ms in (None, 60.0):
        limits = SchedulerConfig(512, 16, target_itl_ms=target_ms)
        figures = figures_of([replace(SETUP, limits=limits, num_slots=8192).run(requests)])
        assert figures.num_ended == 60 and figures.itl_s is not None
        p99[target_ms] = figures.itl_s.p99
    assert p99[60.0] <= 0.060 < p99[None] / 2


def test_a_percentile_is_the_least_value_that_reaches_it() -> None:
    spread = weighted_spread([3.0, 1.0, 2.0], [1, 90, 9])
    assert spread is not None
    assert (spread.p50, spread.p90, spread.p99) == (1.0, 1.0, 2.0)
    assert spread.mean == pytest.approx(1.11)
    assert weighted_spread([], []) is None
