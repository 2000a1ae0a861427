"""Beginnings that are computed once: who finds what, who waits for whom, and that answers never change."""

from array import array

import pytest

from octavo.config import SchedulingPolicy
from octavo.core.request import Request
from octavo.core.step import StepPlan, StepResult
from support.fake_runner import RowError
from support.scheduling import Rig, make_request

B = 4
"""Block size of `Rig`."""


def ask(rig: Rig, request: Request) -> list[StepPlan]:
    """Run one request to its end; its answer must be that of an empty engine."""
    rig.scheduler.add(request)
    plans = rig.run()
    rig.check_answer(request)
    return plans


def cached(rig: Rig, request_id: str) -> int:
    tokens = rig.log[request_id].num_cached_tokens
    assert tokens is not None
    return tokens


def num_computed(plans: list[StepPlan]) -> int:
    return sum(plan.num_tokens for plan in plans)


@pytest.mark.parametrize("prompt_len", [B, 2 * B, 2 * B - 1, 2 * B + 1, 4 * B, 1, 2])
def test_r01_a_prompt_that_is_all_in_the_cache_still_computes_its_last_token(
    prompt_len: int,
) -> None:
    rig = Rig()
    found = []
    for turn in range(3):
        request = make_request(f"{turn}", prompt=prompt_len, max_tokens=5, ignore_eos=True)
        plans = ask(rig, request)
        assert num_computed(plans) == prompt_len + 4 - cached(rig, f"{turn}")
        found.append(cached(rig, f"{turn}"))
    assert found == [0, prompt_len - 1, prompt_len - 1]
    conversation = [*range(1, prompt_len + 1), *rig.log["2"].token_ids[0], 33]
    ask(rig, make_request("next", prompt=conversation, max_tokens=5))
    # All but the last token drawn and the new one has keys and values.
    assert cached(rig, "next") == len(conversation) - 2


def test_a_long_conversation_computes_only_what_is_new() -> None:
    rig = Rig(max_model_len=400)
    tokens: list[int] = []
    for turn in range(8):
        tokens += [turn, 5, 7]
        plans = ask(rig, make_request(f"{turn}", prompt=tokens, max_tokens=6, ignore_eos=True))
        assert num_computed(plans) == (3 + 1 if turn else 3) + 5
        tokens += rig.log[f"{turn}"].token_ids[0]


def test_r03_what_is_about_to_be_reused_does_not_count_as_free() -> None:
    rig = Rig(num_blocks=10, max_num_seqs=2, max_model_len=60)
    ask(rig, make_request("prefix", prompt=6 * B, max_tokens=1))
    assert rig.scheduler.usage().num_blocks_cached == 6
    # Holds 3 blocks, and takes the last that is free for its second token.
    holder = make_request("holder", prompt=range(30, 30 + 3 * B - 1), max_tokens=5, min_tokens=5)
    rig.scheduler.add(holder)
    rig.step()
    request = make_request(
        "long", prompt=[*range(1, 6 * B + 1), *range(9 * B - 6 * B)], max_tokens=1
    )
    rig.scheduler.add(request)  # 9 blocks, 6 of them cached: 3 more, of which 1 is there
    before = rig.scheduler.usage()
    for _ in range(3):
        (step,) = rig.step().seqs
        assert step.seq_id == holder.sequences[0].seq_id
        usage = rig.scheduler.usage()
        assert usage.num_blocks_cached == before.num_blocks_cached
        assert usage.num_prefix_queries == before.num_prefix_queries
    rig.run()
    assert cached(rig, "long") == 6 * B
    for each in (holder, request):
        rig.check_answer(each)


def test_a_request_as_large_as_the_pool_runs_on_what_it_left_behind() -> None:
    rig = Rig(num_blocks=5)
    for turn in range(3):
        ask(rig, make_request(f"{turn}", prompt=5 * B, max_tokens=1))
    # No block is left to copy the last one to: its four tokens are computed again.
    assert [cached(rig, f"{turn}") for turn in range(3)] == [0, 4 * B, 4 * B]


def test_r05_nothing_is_found_before_it_is_computed() -> None:
    rig = Rig()
    first = make_request("a", prompt=16, max_tokens=3)
    rig.scheduler.add(first)
    plan = rig.scheduler.schedule()
    rig.abort("a")
    # The step never runs: its blocks hold nothing.
    rig.scheduler.commit(StepPlan(plan.step_id, ()), StepResult([]))
    rig.check()
    ask(rig, make_request("b", prompt=17, max_tokens=3))
    assert cached(rig, "b") == 0


def test_r05_an_abort_within_a_step_leaves_what_was_computed_before_it() -> None:
    rig = Rig(max_num_batched_tokens=10)
    rig.scheduler.add(make_request("a", prompt=30, max_tokens=3))
    rig.step()
    rig.step(lambda _: rig.abort("a"))
    ask(rig, make_request("b", prompt=30, max_tokens=3))
    assert cached(rig, "b") == 10


def test_what_failed_is_not_found() -> None:
    def fails(history: "array[int]", sample: object) -> int:
        raise RowError("not finite")

    rig = Rig(choose=fails)
    for name in "ab":
        rig.scheduler.add(make_request(name, prompt=10))
        rig.run()
        assert cached_or_none(rig, name) is None
    assert rig.scheduler.usage().num_blocks_free == 100


def cached_or_none(rig: Rig, request_id: str) -> int | None:
    return rig.log[request_id].num_cached_tokens


def test_concurrent_requests_compute_a_new_prefix_once() -> None:
    rig = Rig(max_num_batched_tokens=16, max_num_seqs=8, max_model_len=100)
    prefix = [(7 * position) % 50 for position in range(40)]
    requests = [
        make_request(f"{i}", prompt=[*prefix, i, 1, 2], max_tokens=4, seed=i) for i in range(6)
    ]
    for request in requests:
        rig.scheduler.add(request)
    plans = rig.run()
    for request in requests:
        rig.check_answer(request)
    assert [cached(rig, f"{i}") for i in range(6)] == [0] + [40] * 5
    outputs = sum(len(rig.log[f"{i}"].token_ids[0]) - 1 for i in range(6))
    assert num_computed(plans) == 40 + 6 * 3 + outputs


def test_who_shares_nothing_passes_those_who_wait_for_a_prefix() -> None:
    rig = Rig(max_num_batched_tokens=20, max_model_len=100)
    for name in "ab":
        rig.scheduler.add(make_request(name, prompt=30, max_tokens=2))
    rig.scheduler.add(make_request("c", prompt=[40, 41], max_tokens=2))
    rig.step()
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (1, 2)  # a has all tokens
    rig.step()
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (2, 1)  # a's rest, and c
    assert rig.scheduler.usage().num_prefix_hits == 0
    rig.run()
    assert rig.log.ended.index("c") < rig.log.ended.index("b")
    assert cached(rig, "b") == 28  # the last, partly filled block of a is its own


def test_when_the_one_that_computes_is_aborted_the_next_takes_over() -> None:
    rig = Rig(max_num_batched_tokens=8)
    requests = [make_request(name, prompt=30, max_tokens=3, seed=ord(name)) for name in "abc"]
    for request in requests:
        rig.scheduler.add(request)
    rig.step()
    rig.abort("a")
    rig.step()
    assert rig.scheduler.num_running == 1
    rig.run()
    assert (cached(rig, "b"), cached(rig, "c")) == (8, 28)
    for request in requests[1:]:
        rig.check_answer(request)


def test_nobody_waits_for_one_of_worse_rank() -> None:
    rig = Rig(max_num_batched_tokens=8, max_model_len=100, policy=SchedulingPolicy.PRIORITY)
    low = make_request("low", prompt=40, max_tokens=2, priority=1)
    rig.scheduler.add(low)
    rig.step()
    rig.scheduler.add(make_request("high", prompt=40, max_tokens=2, priority=0))
    plan = rig.step()
    assert plan.seqs[0].start == 8  # what low has published so far, and on from there
    assert len(plan.seqs[0].token_ids) == 8
    rig.run()
    assert rig.log.ended == ["high", "low"]
    rig.check_answer(low)


def test_equal_blocks_of_running_sequences_become_one() -> None:
    rig = Rig(max_num_batched_tokens=64, policy=SchedulingPolicy.PRIORITY)
    # The second may not wait for the first, so both compute the prompt.
    first = make_request("a", prompt=18, max_tokens=9, min_tokens=9, priority=1)
    second = make_request("b", prompt=18, max_tokens=9, min_tokens=9, priority=0, seed=1)
    rig.scheduler.add(first)
    plan = rig.scheduler.schedule()
    rig.scheduler.add(second)
    rig.log.add(rig.scheduler.commit(plan, rig.runner.run(plan)))
    rig.step()
    usage = rig.scheduler.usage()
    assert usage.num_blocks_saved_by_sharing == 4
    rig.run()
    for request in (first, second):
        rig.check_answer(request)


def test_duplicates_merge_when_they_are_published() -> None:
    rig = Rig()
    # The answer of one request is the prompt of another that runs beside it.
    rig.scheduler.add(make_request("a", prompt=4, max_tokens=13, min_tokens=13))
    rig.run()
    answer = rig.log["a"].token_ids[0]
    assert rig.scheduler.reset_prefix_cache()
    a = make_request("a2", prompt=4, max_tokens=13, min_tokens=13)
    b = make_request("b", prompt=[1, 2, 3, 4, *answer[:8]], max_tokens=20, min_tokens=20, seed=7)
    rig.scheduler.add(a)
    rig.step()
    rig.scheduler.add(b)
    for _ in range(9):
        rig.step()
    blocks = [list(rig.tables.blocks(request.sequences[0].seq_id))[:3] for request in (a, b)]
    assert blocks[0] == blocks[1]
    assert rig.scheduler.usage().num_blocks_saved_by_sharing == 3
    rig.run()
    for request in (a, b):
        rig.check_answer(request)


def test_a_preempted_sequence_goes_on_with_what_is_still_there() -> None:
    rig = Rig(num_blocks=8, max_num_seqs=2)
    requests = [
        make_request(name, prompt=range(s, s + 10), max_tokens=12, min_tokens=12, seed=s)
        for name, s in (("a", 1), ("b", 20))
    ]
    for request in requests:
        rig.scheduler.add(request)
    plans = rig.run()
    assert rig.scheduler.usage().num_preemptions > 0
    computed_twice = num_computed(plans) - 2 * (10 + 11)
    assert computed_twice == sum(request.num_recomputed_tokens for request in requests)
    assert computed_twice < 10  # without the cache: everything that the victim had computed
    for request in requests:
        rig.check_answer(request)
    assert (cached(rig, "a"), cached(rig, "b")) == (0, 0)  # their own blocks are no hits


def test_prompt_logprobs_are_computed_whatever_is_cached() -> None:
    rig = Rig()
    ask(rig, make_request("a", prompt=18, max_tokens=2))
    request = make_request("b", prompt=18, max_tokens=2, prompt_logprobs=0)
    ask(rig, request)
    assert cached(rig, "b") == 0
    assert len(rig.log["b"].prompt_logprobs or ()) == 17
    ask(rig, make_request("c", prompt=18, max_tokens=2))
    assert cached(rig, "c") == 17


def test_other_salts_share_nothing() -> None:
    rig = Rig()
    for name, salt in (("a", ""), ("b", "x"), ("c", "y"), ("d", "x"), ("e", "")):
        ask(rig, make_request(name, prompt=18, max_tokens=2, cache_salt=salt))
    assert [cached(rig, name) for name in "abcde"] == [0, 0, 0, 17, 17]


def test_parallel_samples_count_their_prompt_once() -> None:
    rig = Rig()
    ask(rig, make_request("a", prompt=18, max_tokens=3, n=3))
    request = make_request("b", prompt=18, max_tokens=3, n=3)
    ask(rig, request)
    usage = rig.scheduler.usage()
    assert (usage.num_prefix_queries, usage.num_prefix_hits) == (36, 17)


def test_the_oldest_go_first_and_the_end_of_each_before_its_beginning() -> None:
    rig = Rig(num_blocks=10)
    old = list(range(1, 17))
    new = list(range(20, 36))
    for name, prompt in (("old", old), ("new", new)):
        ask(rig, make_request(name, prompt=prompt, max_tokens=1))
    ask(rig, make_request("other", prompt=range(40, 50), max_tokens=1, n=1))  # 3 blocks, 2 are free
    ask(rig, make_request("again", prompt=new, max_tokens=1))
    assert cached(rig, "again") == 15
    ask(rig, make_request("old again", prompt=old, max_tokens=1))
    assert cached(rig, "old again") >= 8
    assert rig.scheduler.usage().num_blocks_evicted > 0


def test_without_prefix_caching_nothing_is_kept() -> None:
    rig = Rig(prefix_caching=False)
    for name in "ab":
        ask(rig, make_request(name, prompt=18, max_tokens=4))
        assert cached(rig, name) == 0
    usage = rig.scheduler.usage()
    assert (usage.num_blocks_cached, usage.num_prefix_queries) == (0, 0)
    assert usage.num_blocks_free == usage.num_blocks_total


def test_a_reset_leaves_what_is_held() -> None:
    rig = Rig()
    ask(rig, make_request("a", prompt=18, max_tokens=2))
    request = make_request("b", prompt=18, max_tokens=3, min_tokens=3)
    rig.scheduler.add(request)
    rig.step()
    assert not rig.scheduler.reset_prefix_cache()
    rig.check()
    rig.run()
    rig.check_answer(request)
    assert rig.scheduler.reset_prefix_cache()
    assert rig.scheduler.usage().num_blocks_free == 100
    ask(rig, make_request("c", prompt=18, max_tokens=2))
    assert cached(rig, "c") == 0


def test_r07_any_order_of_overlapping_prompts() -> None:
    base = [(11 * position) % 50 for position in range(30)]
    prompts = [base[:size] for size in range(1, 30, 3)]
    prompts += [[*base[:size], 49, 48] for size in range(0, 28, 3)]
    for num_at_once in (1, 8):
        rig = Rig(num_blocks=40, max_num_seqs=num_at_once)
        order = [*range(20), *reversed(range(20)), *((7 * i) % 20 for i in range(20))]
        requests = [
            make_request(f"{i}", prompt=prompts[which], max_tokens=6, seed=which)
            for i, which in enumerate(order)
        ]
        for request in requests:
            rig.scheduler.add(request)
        rig.run()
        for request in requests:
            rig.check_answer(request)
        assert rig.scheduler.usage().num_prefix_hits > 0
