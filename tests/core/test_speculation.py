"""Guessing ahead: what is guessed, when it pays to, and that no answer depends on it."""

from array import array
from itertools import pairwise
from typing import Any

import pytest

from octavo.config import SpeculationConfig
from octavo.core.events import Event, TokenEvent
from octavo.core.request import FinishReason, Request
from octavo.core.speculation import (
    FREE_TOKENS,
    MAX_PAUSE,
    MOST_TOKENS,
    Pace,
    SpeculationCounts,
    continuation,
)
from octavo.core.step import Sample, StepPlan
from support.fake_runner import RowError, echo, hashed
from support.scheduling import Rig, make_request

CONFIG = SpeculationConfig()
GUESSY = SpeculationConfig(num_speculative_tokens=20, prompt_lookup_min=1)


def ids(*token_ids: int) -> "array[int]":
    return array("i", token_ids)


@pytest.mark.parametrize(
    ("token_ids", "count", "expected"),
    [
        ([1, 2, 3, 4, 9, 1, 2], 2, [3, 4]),
        ([1, 2, 3, 1, 2, 4, 1, 2], 2, [4, 1]),  # the last of two places
        ([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], 1, [3]),  # a longer match counts for more
        ([1, 2, 3, 1, 2], 8, [3, 1, 2, 3, 1, 2, 3, 1]),  # goes on repeating itself
        ([5, 5, 5], 4, [5, 5, 5, 5]),
        ([1, 2, 3, 4], 4, []),
        ([1, 2, 3, 2], 4, []),  # one token is not enough
        ([1, 2], 4, []),
        ([1], 4, []),
        ([256, 65536, 1, 256, 65536], 1, [1]),
        ([1 << 8, 1 << 16, 9, 1, 256], 2, []),  # only bytes of neighbours look alike
    ],
)
def test_a_guess_is_what_followed_the_last_tokens_before(
    token_ids: list[int], count: int, expected: list[int]
) -> None:
    assert list(continuation(ids(*token_ids), 4, 2, count)) == expected


def test_a_search_for_bytes_skips_places_between_tokens() -> None:
    last = ids(0x0100, 0x0200)
    shifted = array("i")
    shifted.frombytes(b"\0" + last.tobytes() + b"\0\0\0")
    token_ids = last + ids(42) + shifted + ids(7) + last
    assert token_ids.tobytes().count(last.tobytes()) == 3
    assert list(continuation(token_ids, 2, 2, 1)) == [42]
    assert list(continuation(token_ids[3:], 2, 2, 1)) == []


def test_guesses_get_longer_while_they_are_right() -> None:
    pace = Pace()
    lengths = []
    for _ in range(4):
        lengths.append(pace.allowance(0))
        pace.learn(lengths[-1], lengths[-1])
    assert lengths == [1, 2, 4, 8]
    pace.learn(8, 3)
    assert pace.allowance(0) == 4


def test_a_sequence_without_luck_tries_less_and_less_often() -> None:
    pace = Pace()
    tries = []
    for step in range(300):
        if pace.allowance(0):
            tries.append(step)
            pace.learn(1, 0)
    pauses = [b - a - 1 for a, b in pairwise(tries)]
    assert pauses[:6] == [1, 3, 7, 15, 31, MAX_PAUSE]
    assert set(pauses[6:]) == {MAX_PAUSE}
    pace.pause = 0
    pace.learn(1, 1)  # one success does not wipe out the record
    pace.learn(1, 0)
    assert pace.pause == MAX_PAUSE


def test_free_tokens_are_used_all_the_same() -> None:
    pace = Pace()
    for _ in range(9):
        pace.learn(3, 0)
        assert pace.allowance(3) == 3


def events_of(
    speculation: SpeculationConfig | None, requests: list[Request], **rest: Any
) -> tuple[dict[tuple[str, int], list[TokenEvent]], int, Rig]:
    """What each sequence was told, in order; the steps that it took; and the rig."""
    rig = Rig(speculation=speculation, **({"choose": echo} | rest))
    found: dict[tuple[str, int], list[TokenEvent]] = {}
    for request in requests:
        rig.scheduler.add(request)
    steps = 0
    while rig.scheduler.has_work:
        plan = rig.scheduler.schedule()
        events: list[Event] = rig.scheduler.commit(plan, rig.runner.run(plan))
        rig.log.add(events)
        rig.check()
        steps += 1
        for event in events:
            if isinstance(event, TokenEvent):
                found.setdefault((event.request_id, event.index), []).append(event)
    return found, steps, rig


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "one": ([{"max_tokens": 40}], {}),
    "greedy": ([{"temperature": 0.0, "max_tokens": 40}], {}),
    "logprobs": ([{"max_tokens": 40, "logprobs": 1, "prompt_logprobs": 1}], {}),
    "parallel samples": ([{"n": 3, "max_tokens": 30, "logprobs": 0}], {}),
    "stop tokens": ([{"max_tokens": 50, "stop_token_ids": tuple(range(20, 26))}], {}),
    "end tokens": ([{"max_tokens": 50, "ignore_eos": False}], {"end_token_ids": range(8)}),
    "late end tokens": (
        [{"max_tokens": 50, "min_tokens": 20, "ignore_eos": False}],
        {"end_token_ids": range(12)},
    ),
    "to the end of the context": ([{"max_tokens": None}] * 2, {}),
    "three": ([{"max_tokens": n} for n in (30, 31, 32)], {}),
    "in a small pool": ([{"max_tokens": 30, "n": 2}] * 3, {"num_blocks": 13}),
    "in the smallest pool": ([{"max_tokens": 30}] * 2, {"num_blocks": 9}),
    "within a small budget": ([{"max_tokens": 30}] * 2, {"max_num_batched_tokens": 3}),
    "within a budget of one": ([{"max_tokens": 30}], {"max_num_batched_tokens": 1}),
    "without a gain": ([{"max_tokens": 50}], {"choose": hashed}),
}


@pytest.mark.parametrize("config", [CONFIG, GUESSY])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_the_same_with_and_without(name: str, config: SpeculationConfig) -> None:
    all_params, options = CASES[name]
    for seed in range(6):
        runs = []
        for speculation in (None, config):
            requests = [
                make_request(
                    f"{i}", [3, 4, 5, 3, 4], seed=seed + i, **({"ignore_eos": True} | params)
                )
                for i, params in enumerate(all_params)
            ]
            options = {"max_num_seqs": 8} | options
            options["max_num_seqs"] = min(
                options["max_num_seqs"], options.get("max_num_batched_tokens", 8)
            )
            runs.append(events_of(speculation, requests, **options))
        (plain, plain_steps, _), (guessed, steps, rig) = runs
        assert guessed == plain
        assert steps <= plain_steps
        for request in requests:
            rig.check_answer(request)


@pytest.mark.parametrize("max_tokens", range(1, 14))
def test_max_tokens_may_lie_inside_a_guess(max_tokens: int) -> None:
    request = make_request("a", [3, 4, 3, 4], max_tokens=max_tokens, ignore_eos=True)
    found, _, rig = events_of(CONFIG, [request], choose=lambda history, sample: history[-2])
    assert [event.token_id for event in found["a", 0]] == ([3, 4] * 7)[:max_tokens]
    assert rig.log["a"].finish_reasons == {0: FinishReason.LENGTH}


def test_a_stop_token_may_lie_inside_a_guess() -> None:
    request = make_request("a", [3, 4, 5, 6, 7, 8, 3], max_tokens=9, stop_token_ids=(6,))
    rig = Rig(speculation=SpeculationConfig(prompt_lookup_min=1), choose=lambda h, _: h[-6])
    rig.scheduler.add(request)
    rig.step()
    plan = rig.step()
    assert list(plan.seqs[0].token_ids) == [4, 5, 6, 7]  # guessed past the stop token
    assert rig.log["a"].token_ids == {0: [4, 5, 6]}
    assert rig.log["a"].stop_reasons == {0: 6}
    assert not rig.scheduler.has_work


def cycling(history: "array[int]", sample: Sample) -> int:
    return history[-3]


def test_the_plan_says_what_is_guessed_and_wrong_guesses_leave_no_slot() -> None:
    wrong_from = 7

    def choose(history: "array[int]", sample: Sample) -> int:
        return history[-3] if sample.output_index < wrong_from else 40 + sample.output_index % 7

    rig = Rig(speculation=CONFIG, block_size=2, choose=choose)
    rig.scheduler.add(make_request("a", [3, 4, 5, 3, 4], max_tokens=30, ignore_eos=True))
    rig.step()
    step = rig.step().seqs[0]
    assert (list(step.token_ids), step.start, step.num_drafts) == ([5, 3, 4, 5], 5, 3)
    assert list(step.draw_offsets) == [0, 1, 2, 3]
    assert [sample.output_index for sample in step.samples] == [1, 2, 3, 4]
    assert [list(sample.token_ids[5:]) for sample in step.samples] == [
        [5], [5, 3], [5, 3, 4], [5, 3, 4, 5],
    ]  # fmt: skip
    assert rig.log["a"].token_ids == {0: [5, 3, 4, 5, 3]}
    assert rig.scheduler.usage().num_slots_used == 9
    step = rig.step().seqs[0]
    assert (len(step.token_ids), step.num_drafts) == (7, 6)
    assert rig.log["a"].token_ids == {0: [5, 3, 4, 5, 3, 4, 5, 40]}  # two right, one to show it
    usage = rig.scheduler.usage()
    assert (usage.num_slots_used, usage.num_blocks_referenced) == (12, 6)
    assert rig.scheduler.speculation == SpeculationCounts(2, 9, 5)
    rig.run()


def drafts(plan: StepPlan) -> list[int]:
    return [step.num_drafts for step in plan.seqs]


def test_steps_with_guesses_stay_small() -> None:
    for num_seqs in range(1, 11):
        rig = Rig(
            speculation=CONFIG,
            max_num_seqs=16,
            num_blocks=400,
            max_num_batched_tokens=100,
            choose=cycling,
        )
        for i in range(num_seqs):
            prompt = [i, 3, 4, i, 3, 4]
            rig.scheduler.add(make_request(f"{i}", prompt, max_tokens=40, ignore_eos=True))
        plans = [rig.step() for _ in range(8)]
        most = max(plan.num_tokens for plan in plans[1:])
        assert most == (MOST_TOKENS if num_seqs < MOST_TOKENS else num_seqs)
        if num_seqs >= MOST_TOKENS:
            assert all(drafts(plan) == [0] * num_seqs for plan in plans)
        rig.run()


def test_nothing_is_guessed_beside_a_prompt() -> None:
    rig = Rig(speculation=CONFIG, choose=cycling)
    rig.scheduler.add(make_request("a", [3, 4, 5, 3, 4], max_tokens=40, ignore_eos=True))
    rig.step()
    rig.scheduler.add(make_request("b", 20, max_tokens=2))
    assert drafts(rig.step()) == [0, 0]
    assert sum(drafts(rig.step())) > 0
    rig.run()


def test_without_luck_only_free_tokens_are_spent() -> None:
    def choose(history: "array[int]", sample: Sample) -> int:
        return 3 + sample.output_index % 2 if sample.output_index < 8 else 10 + sample.output_index

    rig = Rig(speculation=CONFIG, max_model_len=64, choose=choose, max_num_seqs=2)
    prompt = [token for i in range(10, 40) for token in (i, 99)]
    rig.scheduler.add(make_request("a", prompt[:30], max_tokens=30, ignore_eos=True))
    plans = rig.run()
    assert all(plan.num_tokens <= MOST_TOKENS for plan in plans[1:])
    assert all(plan.num_tokens <= FREE_TOKENS for plan in plans[-10:])


def test_a_long_guess_that_was_asked_for() -> None:
    rig = Rig(speculation=SpeculationConfig(num_speculative_tokens=12), choose=cycling)
    rig.scheduler.add(make_request("a", [3, 4, 5, 3, 4], max_tokens=50, ignore_eos=True))
    assert max(max(drafts(plan)) for plan in rig.run()) == 12


def test_a_failed_row_counts_only_once_it_is_reached() -> None:
    def choose(history: "array[int]", sample: Sample) -> int:
        if sample.output_index == 3:
            raise RowError("no answer")
        return history[-3]

    rig = Rig(speculation=CONFIG, choose=choose)
    rig.scheduler.add(make_request("a", [3, 4, 5, 3, 4], max_tokens=50, ignore_eos=True))
    rig.run()
    assert rig.log["a"].token_ids == {0: [5, 3, 4]}
    assert rig.log["a"].finish_reasons == {0: FinishReason.ERROR}


def test_a_failed_row_behind_a_wrong_guess_does_not_count() -> None:
    def choose(history: "array[int]", sample: Sample) -> int:
        if list(history[-2:]) == [3, 4] and sample.output_index > 2:
            raise RowError("this text never comes about")
        return 5 if sample.output_index == 0 else 40 + sample.output_index

    rig = Rig(speculation=CONFIG, choose=choose)
    request = make_request("a", [3, 4, 5, 3, 4], max_tokens=6, ignore_eos=True)
    rig.scheduler.add(request)
    rig.run()
    assert rig.log["a"].finish_reasons == {0: FinishReason.LENGTH}


def test_an_abort_within_a_step_with_guesses() -> None:
    rig = Rig(speculation=CONFIG, choose=cycling)
    for name in "ab":
        rig.scheduler.add(make_request(name, [3, 4, 5, 3, 4], max_tokens=40, ignore_eos=True))
    rig.step()
    plan = rig.step(lambda _: rig.abort("a"))
    assert sum(drafts(plan)) > 0
    rig.run()
    assert len(rig.log["b"].token_ids[0]) == 40
