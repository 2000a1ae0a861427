"""A runner without a model. Its answers are computed from what its pages hold, so wrong pages give wrong tokens."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

from octavo.core.step import (
    BlockId,
    Sample,
    SampledToken,
    SeqId,
    SeqStep,
    StepPlan,
    StepResult,
    TokenLogprobs,
)

VOCAB_SIZE = 50
_UNWRITTEN = -1


class RowError(Exception):
    """Raised by a `Choose` function: this row has no answer, as when its logits are not finite."""


Choose = Callable[["array[int]", Sample], int]
"""The token that follows these tokens, for this sample."""


def hashed(history: "array[int]", sample: Sample) -> int:
    """A token that depends on every token before it, their order, the seed and the output index."""
    return draw(history, sample.seed, sample.output_index, sample.suppressed_token_ids)


def echo(history: "array[int]", sample: Sample) -> int:
    """Mostly what followed the last time that the last token occurred; now and then another token, at random.

    Texts of such a model repeat themselves, so that guesses from them are right as often as not.
    """
    token_id = hashed(history, sample)
    followers = [b for a, b in pairwise(history) if a == history[-1]]
    strays = crc32(history.tobytes(), sample.seed & 0xFFFF) % 5 == 0
    if strays or not followers or followers[-1] in sample.suppressed_token_ids:
        return token_id
    return followers[-1]


def draw(history: "array[int]", seed: int, output_index: int, suppressed: Collection[int]) -> int:
    """As `hashed`, without a `Sample`: for oracles that know nothing of steps."""
    token_id = crc32(history.tobytes(), crc32(f"{seed} {output_index}".encode())) % VOCAB_SIZE
    while token_id in suppressed:
        token_id = (token_id + 1) % VOCAB_SIZE
    return token_id


def logprobs_of(history: "array[int]", token_id: int, num_top: int) -> TokenLogprobs:
    """Log-probabilities that depend on every token before; not those of any distribution."""
    logprob = -(crc32(history.tobytes(), token_id) % 10_000) / 1_000
    top = tuple((token_id ^ i, logprob - i / 4) for i in range(num_top))
    return TokenLogprobs(token_id, logprob, 1, top)


class FakeRunner:
    """Implements `Runner` over pages that hold token ids instead of keys and values.

    Reads every sequence's history through its block table, and raises AssertionError where a plan is wrong:
    a block written by one sequence and held by another, a slot read before it was written, copies that
    depend on their order, a history other than the sequence's tokens, a page used before it is back.

    `stored` and `slots` stand for the other tiers; `fails` says whether a page cannot be had back.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        choose: Choose = hashed,
        stored: dict[bytes, "array[int]"] | None = None,
        fails: Callable[[], bool] = lambda: False,
    ) -> None:
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._choose = choose
        self._pages: defaultdict[BlockId, array[int]] = defaultdict(
            lambda: array("i", [_UNWRITTEN]) * block_size
        )
        self._fails = fails
        self.stored = {} if stored is None else stored
        self.slots: dict[int, array[int]] = {}
        self.num_steps = 0
        self.num_tokens = 0
        self.is_closed = False

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        return self._num_blocks

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._block_size

    def run(self, plan: StepPlan) -> StepResult:
        """Do the copies, write all new tokens, then read and answer."""
        self.num_steps += 1
        self.num_tokens += plan.num_tokens
        self._send_away(plan)
        self._copy(plan)
        self._write(plan)
        tokens: list[SampledToken] = []
        prompt_logprobs: dict[SeqId, list[TokenLogprobs]] = {}
        for step in plan.seqs:
            history = self._read(step)
            tokens += [self._answer(history, sample) for sample in step.samples]
            if step.num_prompt_logprobs is not None:
                prompt_logprobs[step.seq_id] = [
                    logprobs_of(
                        history[: step.start + offset + 1], target, step.num_prompt_logprobs
                    )
                    for offset, target in enumerate(step.prompt_targets)
                ]
        result = StepResult.of(tokens, prompt_logprobs)
        return replace(result, failed_blocks=self._bring_back(plan))

    def close(self) -> None:
        """Safe to call twice."""
        self.is_closed = True

    def _send_away(self, plan: StepPlan) -> None:
        for swap in plan.swap_outs:
            self.slots[swap.slot] = self._pages[swap.block][:]
        for save in plan.saves:
            assert _UNWRITTEN not in self._pages[save.block], f"{save} is not full"
            self.stored[save.key] = self._pages[save.block][:]
        for block in self._coming(plan):
            self._pages[block] = array("i", [_UNWRITTEN]) * self._block_size

    def _bring_back(self, plan: StepPlan) -> frozenset[BlockId]:
        failed: set[BlockId] = set()
        pages = [(swap.block, self.slots[swap.slot]) for swap in plan.swap_ins]
        pages += [(load.block, self.stored[load.key]) for load in plan.loads]
        for block, page in pages:
            if self._fails():
                failed.add(block)
            else:
                self._pages[block] = page[:]
        return frozenset(failed)

    def _coming(self, plan: StepPlan) -> list[BlockId]:
        blocks = [swap.block for swap in plan.swap_ins] + [load.block for load in plan.loads]
        used = {block for step in plan.seqs for block in step.block_table}
        used.update(block for copy in plan.copies for block in (copy.src, copy.dst))
        assert not used & set(blocks), "a page is used in the step that brings it"
        assert len(set(blocks)) == len(blocks), "two pages come to one block"
        return blocks

    def _copy(self, plan: StepPlan) -> None:
        sources = {copy.src for copy in plan.copies}
        destinations = {copy.dst for copy in plan.copies}
        assert len(destinations) == len(plan.copies), f"a block is copied to twice: {plan.copies}"
        assert not sources & destinations, f"the order of copies matters: {plan.copies}"
        for copy in plan.copies:
            self._pages[copy.dst][:] = self._pages[copy.src]

    def _write(self, plan: StepPlan) -> None:
        holders: dict[BlockId, set[SeqId]] = {}
        for step in plan.seqs:
            for block in step.block_table:
                assert 0 <= block < self._num_blocks, f"no such block: {block}"
                holders.setdefault(block, set()).add(step.seq_id)
        for step in plan.seqs:
            end = step.start + len(step.token_ids)
            assert step.token_ids, f"sequence {step.seq_id} is planned without tokens"
            assert len(step.block_table) == -(-end // self._block_size), f"wrong table: {step}"
            for position, token_id in enumerate(step.token_ids, step.start):
                block = step.block_table[position // self._block_size]
                assert holders[block] == {step.seq_id}, f"block {block} is written and shared"
                self._pages[block][position % self._block_size] = token_id

    def _read(self, step: SeqStep) -> "array[int]":
        history = array("i")
        for block in step.block_table:
            history.extend(self._pages[block])
        history = history[: step.start + len(step.token_ids)]
        assert _UNWRITTEN not in history, f"sequence {step.seq_id} reads what nobody wrote"
        return history

    def _answer(self, history: "array[int]", sample: Sample) -> SampledToken:
        known = sample.token_ids
        history = history[: sample.prompt_len + sample.output_index]
        assert history == known, f"the pages of sequence {sample.seq_id} hold other tokens"
        try:
            token_id = self._choose(history, sample)
        except RowError as error:
            return SampledToken(0, error=str(error))
        if sample.params.logprobs is None:
            return SampledToken(token_id)
        logprobs = logprobs_of(history, token_id, sample.params.logprobs)
        return SampledToken(token_id, logprobs)
