"""Any order of submissions, steps and aborts, in pools that are far too small.

After every step the books add up; in the end every request has ended once, with the tokens that it would have
got alone in an unbounded pool.
"""

import random
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from octavo.config import SchedulingPolicy, SpeculationConfig
from octavo.core.costs import RestoreCosts
from octavo.core.governor import Governor
from octavo.core.named_prefixes import PrefixKey
from octavo.core.request import FinishReason, Request
from octavo.core.step import StepPlan
from octavo.errors import CapacityError, ContextLengthError, InvalidParameterError, UserError
from support.fake_runner import Choose, FakeRunner, echo, hashed, logprobs_of
from support.scheduling import Rig, expected_outputs, make_request

MAX_MODEL_LEN = 40
SPECULATION = SpeculationConfig()
COSTS = (
    None,
    RestoreCosts(token=1.0),
    RestoreCosts(token=1.0, page_out=0.1, page_in=0.1),
    RestoreCosts(token=1.0, page_out=4.0, page_in=4.0),
)
"""Not measured; tail or all computed again; mostly swapped; some of each."""
GUESSY = SpeculationConfig(num_speculative_tokens=20, prompt_lookup_min=1)
"""Many and long guesses."""

OPERATIONS = (
    "num_block_copies", "num_prefix_hits", "num_blocks_evicted", "num_dropped_tails", "num_swaps", "computed again",
    "num_blocks_swapped_in", "num_blocks_stored", "num_blocks_loaded", "num_blocks_failed", "forked", "aborted",
    "pinned", "expired",
)  # fmt: skip
"""All that has to come about in a long run."""

Params = dict[str, Any]


@st.composite
def prompts(draw: st.DrawFn) -> list[int]:
    """Mostly short, so that many sequences run at once."""
    size = draw(st.one_of(st.integers(1, 9), st.integers(1, 9), st.integers(1, MAX_MODEL_LEN)))
    start = draw(st.integers(0, 40))
    return [(start + 7 * position) % 50 for position in range(size)]


@st.composite
def sampling(draw: st.DrawFn) -> Params:
    max_tokens = draw(st.one_of(st.none(), st.integers(1, 20), st.integers(10, 20)))
    return {
        "n": draw(st.sampled_from([1, 1, 1, 2, 3, 4, 7])),
        "max_tokens": max_tokens,
        "min_tokens": draw(st.integers(0, 10 if max_tokens is None else max_tokens)),
        "ignore_eos": draw(st.booleans()),
        "stop_token_ids": draw(st.sampled_from([(), (3,), (3, 4)])),
        "logprobs": draw(st.sampled_from([None, 0])),
        "prompt_logprobs": draw(st.sampled_from([None, None, 0])),
    }


class SchedulerMachine(RuleBasedStateMachine):
    """`rig` checks blocks, tables and queues after every step and abort, and its runner checks every plan."""

    seen: ClassVar[Counter[str]] = Counter()
    """What has come about, in all runs."""

    @invariant()
    def count_the_step(self) -> None:
        self.seen["steps"] += 1

    @initialize(
        num_slots=st.one_of(st.integers(8, 64), st.integers(48, 80)),
        block_size=st.integers(1, 5),
        max_num_batched_tokens=st.integers(1, 24),
        max_num_seqs=st.integers(1, 8),
        policy=st.sampled_from(SchedulingPolicy),
        prefix_caching=st.sampled_from([True, True, True, False]),
        target_s=st.sampled_from([None, None, 0.01]),
        pinned=st.sampled_from([0.0, 0.3, 1.0]),
        costs=st.sampled_from(COSTS),
        num_swap_slots=st.sampled_from([0, 3, 20, 100]),
        is_stored=st.booleans(),
        failures=st.sampled_from([0.0, 0.0, 0.3]),
        rng=st.randoms(use_true_random=False),
        model=st.sampled_from([(hashed, None), (echo, None), (echo, SPECULATION), (echo, GUESSY)]),
    )
    def open(
        self,
        num_slots: int,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        policy: SchedulingPolicy,
        prefix_caching: bool,
        target_s: float | None,
        pinned: float,
        model: tuple[Choose, SpeculationConfig | None],
        costs: RestoreCosts | None,
        num_swap_slots: int,
        is_stored: bool,
        failures: float,
        rng: random.Random,
    ) -> None:
        num_blocks = num_slots // block_size
        self.num_slots = num_blocks * block_size
        self.max_num_seqs = max_num_seqs
        self.stored: dict[bytes, array[int]] | None = {} if is_stored else None
        self.open_rig: Callable[[], Rig] = lambda: Rig(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=MAX_MODEL_LEN,
            policy=policy,
            end_token_ids=(0, 1),
            prefix_caching=prefix_caching,
            choose=model[0],
            speculation=model[1],
            governor=None if target_s is None else Governor(target_s),
            named_prefix_share=pinned,
            costs=costs,
            num_swap_slots=num_swap_slots,
            stored=self.stored,
            runner=FakeRunner(
                num_blocks,
                block_size,
                choose=model[0],
                stored=self.stored,
                fails=lambda: rng.random() < failures,
            ),
        )
        self.rig = self.open_rig()
        self.requests: list[Request] = []
        self.aborted: set[str] = set()
        self.aborted_sequences: set[tuple[str, int]] = set()

    def expected_refusal(self, request: Request) -> type[UserError] | None:
        if request.prompt_len >= MAX_MODEL_LEN:
            return ContextLengthError
        if request.params.n > self.max_num_seqs:
            return InvalidParameterError
        longest = min(
            MAX_MODEL_LEN, request.prompt_len + (request.params.max_tokens or MAX_MODEL_LEN)
        )
        return CapacityError if longest - 1 > self.num_slots else None

    @rule(
        prompt=prompts(),
        seed=st.integers(-(2**63), 2**63 - 1),
        priority=st.integers(-1, 1),
        salt=st.sampled_from(["", "", "", "a"]),
        params=sampling(),
        tenant=st.sampled_from(["", "", "a", "b"]),
    )
    def submit(
        self, prompt: list[int], seed: int, priority: int, salt: str, params: Params, tenant: str
    ) -> None:
        self.submit_request(prompt, seed, priority, salt, params | {"tenant": tenant})

    def submit_request(
        self, prompt: list[int], seed: int, priority: int, salt: str, params: Params
    ) -> None:
        name = f"{len(self.requests)}"
        request = make_request(
            name, prompt, seed=seed, priority=priority, cache_salt=salt, **params
        )
        refusal = self.expected_refusal(request)
        if refusal is None:
            self.rig.scheduler.add(request)
            self.requests.append(request)
        else:
            with pytest.raises(refusal):
                self.rig.scheduler.add(request)
        self.rig.check()

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), added=prompts(), cut=st.integers(0, 5), params=sampling())
    def submit_the_next_turn(
        self, data: st.DataObject, added: list[int], cut: int, params: Params
    ) -> None:
        """A prompt that begins as an earlier request and its answer so far, all of it or most."""
        before = data.draw(st.sampled_from(self.requests))
        known = list(before.sequences[0].token_ids)
        prompt = [*known[: len(known) - cut], *added[: data.draw(st.integers(1, 3))]]
        self.submit_request(prompt, 1, 0, before.cache_salt, params)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), name=st.sampled_from("pqr"), ttl=st.sampled_from([2, 5, None]))
    def pin(self, data: st.DataObject, name: str, ttl: int | None) -> None:
        """As much as is cached of an earlier prompt and its answer, under a name."""
        size = self.rig.tables.block_size
        cached = [request for request in self.requests if self.num_cached(request) >= size]
        before = data.draw(st.sampled_from(cached or self.requests))
        known, found = before.sequences[0].token_ids, self.num_cached(before)
        prefixes = self.rig.scheduler.named_prefixes
        until = None if ttl is None else self.rig.scheduler._num_steps + ttl
        key = PrefixKey(name, before.cache_salt)
        try:
            prefixes.check(found)
            prefixes.pin(key, array("i", known[:found]), until)
            self.seen["pinned"] += 1
        except UserError:
            assert found < size or prefixes.num_blocks + found // size > prefixes.most_blocks
        self.rig.check()
        assert prefixes.num_blocks <= prefixes.most_blocks

    def num_cached(self, request: Request) -> int:
        """Tokens of a request and its first answer, in full blocks."""
        tables, known = self.rig.tables, request.sequences[0].token_ids
        match = tables.match(tables.chain(request.cache_salt), known, len(known))
        return len(match.blocks) * tables.block_size

    @rule(name=st.sampled_from("pqr"), salt=st.sampled_from(["", "a"]))
    def unpin(self, name: str, salt: str) -> None:
        self.rig.scheduler.named_prefixes.unpin(PrefixKey(name, salt))
        self.rig.check()

    def expire(self) -> None:
        prefixes = self.rig.scheduler.named_prefixes
        self.seen["expired"] += prefixes.expire(self.rig.scheduler._num_steps)
        self.rig.check()

    @precondition(lambda self: self.stored is not None)
    @rule()
    def restart(self) -> None:
        """What is open ends; what was stored is found again."""
        self.finish()
        self.rig = self.open_rig()
        self.requests, self.aborted, self.aborted_sequences = [], set(), set()

    @rule()
    def reset_the_cache(self) -> None:
        self.rig.scheduler.reset_prefix_cache()
        self.rig.check()

    @rule(count=st.integers(1, 8))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.rig.step()
            self.expire()

    def abort_one(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(self.requests)).request_id
        if request_id not in self.rig.log.ended:
            self.aborted.add(request_id)
        self.rig.abort(request_id)

    def abort_one_sequence(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.requests))
        index = data.draw(st.integers(0, request.params.n - 1))
        outcome = self.rig.log.outcomes.get(request.request_id)
        if outcome and index in outcome.token_ids and index not in outcome.finish_reasons:
            self.aborted_sequences.add((request.request_id, index))
        self.rig.abort_sequence(request.request_id, index)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort_sequence(self, data: st.DataObject) -> None:
        self.abort_one_sequence(data)
        self.rig.check()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.abort_one(data)
        self.rig.check()

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(1, 3))
    def abort_within_a_step(self, data: st.DataObject, count: int) -> None:
        def between(plan: StepPlan) -> None:
            for _ in range(count):
                self.abort_one(data)
                self.abort_one_sequence(data)

        self.rig.step(between)

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.finish()

    def finish(self) -> None:
        self.rig.run(max_steps=20_000)
        usage = self.rig.scheduler.usage()
        self.seen.update({name: n for name, n in asdict(usage).items() if name in OPERATIONS})
        known = usage.num_dropped_tails + usage.num_swaps
        self.seen["computed again"] += usage.num_preemptions - known
        self.seen["aborted"] += len(self.aborted) + len(self.aborted_sequences)
        self.seen["forked"] += sum(len(request.sequences) > 1 for request in self.requests)
        assert sorted(self.rig.log.ended) == sorted(request.request_id for request in self.requests)
        for request in self.requests:
            if request.request_id in self.aborted:
                self.check_aborted(request)
            else:
                self.check_sequences(request)
                self.check_prompt_logprobs(request)

    def whole_answer(self, request: Request) -> dict[int, tuple[list[int], FinishReason]]:
        return expected_outputs(
            request, max_model_len=MAX_MODEL_LEN, end_token_ids=(0, 1), choose=self.rig.choose
        )

    def check_aborted(self, request: Request) -> None:
        outcome = self.rig.log[request.request_id]
        whole = self.whole_answer(request)
        assert set(outcome.finish_reasons) == set(whole)
        assert FinishReason.ABORT in outcome.finish_reasons.values()
        for index, tokens in outcome.token_ids.items():
            assert tokens == whole[index][0][: len(tokens)]

    def check_sequences(self, request: Request) -> None:
        """All have their whole answer, but those that were aborted by themselves."""
        name = request.request_id
        indices = [i for i in range(request.params.n) if (name, i) in self.aborted_sequences]
        outcome = self.rig.log[name]
        whole = self.whole_answer(request)
        for index in indices:
            tokens = outcome.token_ids[index]
            assert tokens == whole[index][0][: len(tokens)]
            assert outcome.finish_reasons[index] is FinishReason.ABORT
            outcome.token_ids[index], outcome.finish_reasons[index] = whole[index]
        self.rig.check_answer(request)

    def check_prompt_logprobs(self, request: Request) -> None:
        prompt, num_top = request.prompt_token_ids, request.params.prompt_logprobs
        expected = None
        if num_top is not None:
            expected = tuple(
                logprobs_of(prompt[:n], prompt[n], num_top) for n in range(1, len(prompt))
            )
        assert self.rig.log[request.request_id].prompt_logprobs == expected


def run_machine(num_steps: int) -> None:
    SchedulerMachine.seen.clear()
    while SchedulerMachine.seen["steps"] < num_steps:
        run_state_machine_as_test(
            SchedulerMachine,
            settings=settings(max_examples=num_steps // 36, stateful_step_count=40, deadline=None),
        )


def test_any_order_of_requests_steps_and_aborts() -> None:
    run_machine(10_000)


@pytest.mark.long
def test_any_order_of_requests_steps_and_aborts_long() -> None:
    run_machine(100_000)
    assert [name for name in OPERATIONS if SchedulerMachine.seen[name] == 0] == []
