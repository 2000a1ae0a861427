"""Running given tokens through a runner with plans made by hand: no scheduler, no engine.

Each sequence owns a run of pages of its own, one after another from page 0.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Runner, Sampling, SeqStep, StepPlan

CHUNK_TOKENS = 256
"""Most tokens of one plan."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=None)


class LogitsRunner(Runner, Protocol):
    """A runner that also gives the logits of every token."""

    def forward(self, plan: StepPlan) -> NDArray[np.float32]:
        """Do the copies and compute the tokens; their logits, [T, V], in the order of the plan."""
        ...


def num_blocks_for(lengths: Sequence[int], block_size: int) -> int:
    """Pages that sequences of these lengths need all together."""
    return sum(_blocks_of(length, block_size) for length in lengths)


def forced_logits(
    runner: LogitsRunner, prompt: Sequence[int], continuation: Sequence[int]
) -> NDArray[np.float32]:
    """The logits from which each token of `continuation` would be drawn, [len(continuation), V]."""
    return np.concatenate([*forced_chunks(runner, prompt, continuation)])


def forced_chunks(
    runner: LogitsRunner, prompt: Sequence[int], continuation: Sequence[int]
) -> Iterator[NDArray[np.float32]]:
    """As `forced_logits`, but the rows of one plan at a time: [at most CHUNK_TOKENS, V]."""
    known = [*prompt, *continuation[:-1]]
    table = array("i", range(_blocks_of(len(known), runner.block_size)))
    first = len(prompt) - 1
    for start, chunk in _chunks(prompt[:first]):
        runner.run(StepPlan(0, (_seq_step(0, chunk, start, table, runner.block_size),)))
    for start, chunk in _chunks(known[first:]):
        step = _seq_step(0, chunk, first + start, table, runner.block_size)
        yield runner.forward(StepPlan(0, (step,)))


def greedy_tokens(
    runner: Runner, prompts: Sequence[Sequence[int]], lengths: Sequence[int]
) -> list[list[int]]:
    """The most likely continuation of each prompt, `lengths[i]` tokens, all prompts decoded together."""
    sequences: list[_Greedy] = []
    next_block = 0
    for prompt, length in zip(prompts, lengths, strict=True):
        num_blocks = _blocks_of(len(prompt) + length, runner.block_size)
        table = array("i", range(next_block, next_block + num_blocks))
        next_block += num_blocks
        sequences.append(_Greedy(len(sequences), array("i", prompt), len(prompt), length, table))
    for sequence in sequences:
        before_last = sequence.token_ids[: sequence.prompt_len - 1]
        for start, chunk in _chunks(before_last):
            step = _seq_step(sequence.seq_id, chunk, start, sequence.table, runner.block_size)
            runner.run(StepPlan(0, (step,)))
    while open_ones := [sequence for sequence in sequences if sequence.is_open]:
        for start in range(0, len(open_ones), CHUNK_TOKENS):
            batch = open_ones[start : start + CHUNK_TOKENS]
            plan = StepPlan(0, tuple(sequence.next_step(runner.block_size) for sequence in batch))
            for sequence, token_id in zip(batch, runner.run(plan).token_ids, strict=True):
                sequence.token_ids.append(token_id)
    return [list(sequence.token_ids[sequence.prompt_len :]) for sequence in sequences]


@dataclass(slots=True)
class _Greedy:
    """A sequence being decoded: all its tokens but the last have been computed."""

    seq_id: int
    token_ids: "array[int]"
    prompt_len: int
    length: int
    table: "array[int]"

    @property
    def is_open(self) -> bool:
        return len(self.token_ids) < self.prompt_len + self.length

    def next_step(self, block_size: int) -> SeqStep:
        position = len(self.token_ids) - 1
        sampling = Sampling(self.seq_id, GREEDY, 0, self.prompt_len)
        last = self.token_ids[position:]
        return _seq_step(self.seq_id, last, position, self.table, block_size, (sampling,))


def _seq_step(
    seq_id: int,
    token_ids: Sequence[int],
    start: int,
    table: "array[int]",
    block_size: int,
    sampling: tuple[Sampling, ...] = (),
) -> SeqStep:
    covered = table[: _blocks_of(start + len(token_ids), block_size)]
    return SeqStep(seq_id, array("i", token_ids), start, covered, sampling)


def _chunks(token_ids: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    for start in range(0, len(token_ids), CHUNK_TOKENS):
        yield start, token_ids[start : start + CHUNK_TOKENS]


def _blocks_of(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
