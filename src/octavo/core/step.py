"""One step as a value: what the scheduler decided, and what the runner made of it.

A `StepPlan` holds all that a runner needs; a runner keeps no state about requests between steps.
Token ids and block tables are `array('i')`: flat, 4 bytes an entry, readable from C++ without a copy.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from octavo.core.sampling_params import SamplingParams

BlockId = int
SeqId = int
"""Number of a sequence, unique in the life of a scheduler."""


T = TypeVar("T", bound=tuple[Any, ...])


def maker(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Makes a NamedTuple from a tuple of all its fields in half the time, for those made once a sequence and step."""
    return partial(tuple.__new__, kind)


NOTHING: "array[int]" = array("i")
"""No tokens. Read only."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one sequence are drawn: the same in all its steps."""

    seq_id: SeqId
    """The sequence that receives the tokens. Parallel samples of a prompt draw from one row of logits."""
    params: SamplingParams
    seed: int
    """64 bits; with the output index it fixes the random number, whatever else is in the batch."""
    prompt_len: int
    """Tokens of the prompt."""
    suppressed_token_ids: tuple[int, ...] = ()
    """May not be drawn while fewer than `params.min_tokens` tokens are generated: what would end it."""
    is_plain: bool = field(init=False)
    """Whether it always takes the largest logit as it is, and wants nothing but the token."""

    def __post_init__(self) -> None:
        p = self.params
        is_plain = (
            p.is_greedy
            and p.logprobs is None
            and not p.has_penalties
            and not p.logit_bias
            and p.allowed_token_ids is None
            and not p.bad_words_token_ids
            and p.min_tokens == 0
        )
        object.__setattr__(self, "is_plain", is_plain)  # told once, asked in every step

    def suppressed_at(self, output_index: int) -> tuple[int, ...]:
        """Token ids that may not be drawn as this generated token."""
        return self.suppressed_token_ids if output_index < self.params.min_tokens else ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One token to draw, by itself; see `SeqStep.samples`."""

    seq_id: SeqId
    params: SamplingParams
    seed: int
    output_index: int
    """How many tokens this sequence has generated before this one."""
    token_ids: "array[int]"
    """Prompt and generated tokens so far, for penalties and bad words. Read only."""
    prompt_len: int
    """How many of `token_ids` are the prompt."""
    suppressed_token_ids: tuple[int, ...] = ()
    """May not be drawn."""


class SeqStep(NamedTuple):
    """The part of one sequence in a step.

    A tuple, since one is made for each sequence in each step: a frozen dataclass takes four times as long.
    """

    seq_id: SeqId
    token_ids: "array[int]"
    """Tokens whose keys and values this step computes."""
    start: int
    """Position of the first of them; all earlier positions are in the blocks already."""
    block_table: "array[int]"
    """Block ids that cover positions 0 .. start + len(token_ids) - 1. Read only; never changes."""
    sampling: tuple[Sampling, ...] = ()
    """Who draws a token from the logits of the last known token, all with the same parameters. Empty: a prompt chunk
    that is not the last."""
    num_drafts: int = 0
    """How many of `token_ids`, the last ones, are guesses. A token is drawn after each of them too, as if it were
    known; of use are those up to the first whose guess was another."""
    history: "array[int]" = NOTHING
    """The sequence's known tokens, for penalties and bad words: `start` of them lie before `token_ids`. Read only; it
    may be longer, and grows at its end."""
    num_prompt_logprobs: int | None = None
    """If set, also the log-probability of each *next prompt token* after these positions, with this many
    alternatives. `prompt_targets` holds those next tokens."""
    prompt_targets: "array[int]" = NOTHING
    """The prompt token that follows each of `token_ids`; one shorter at the end of the prompt."""

    @property
    def num_draws(self) -> int:
        """Tokens to draw."""
        return len(self.sampling) * (self.num_drafts + 1)

    @property
    def draw_offsets(self) -> range:
        """Which of `token_ids` give logits to draw from: the last known one, and the guesses."""
        count = len(self.token_ids)
        return range(count - 1 - self.num_drafts, count) if self.sampling else range(0)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The tokens to draw, one by one: row by row, and in each row in the order of `sampling`."""
        return tuple(self._sample(s, offset) for offset in self.draw_offsets for s in self.sampling)

    def _sample(self, sampling: Sampling, offset: int) -> Sample:
        output_index = self.start + offset + 1 - sampling.prompt_len
        return Sample(
            sampling.seq_id,
            sampling.params,
            sampling.seed,
            output_index,
            self.history[: self.start] + self.token_ids[: offset + 1],
            sampling.prompt_len,
            sampling.suppressed_at(output_index),
        )


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the keys and values of block `src` to block `dst`, all layers, before anything is computed."""

    src: BlockId
    dst: BlockId


@dataclass(frozen=True, slots=True)
class BlockSwap:
    """A block of the pool, and a slot of the swap space, which holds a block of all layers."""

    block: BlockId
    slot: int


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block of the pool, and the key under which stored prefixes have its keys and values."""

    block: BlockId
    key: bytes


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that one step does. Can be printed, saved and replayed.

    What leaves the pool is read before anything is written. What comes back is in its block when the step ends; no
    sequence of this step uses it.
    """

    step_id: int
    seqs: tuple[SeqStep, ...]
    copies: tuple[BlockCopy, ...] = ()
    swap_outs: tuple[BlockSwap, ...] = ()
    saves: tuple[StoredBlock, ...] = ()
    swap_ins: tuple[BlockSwap, ...] = ()
    loads: tuple[StoredBlock, ...] = ()

    @property
    def num_tokens(self) -> int:
        """T: tokens computed in this step."""
        return sum(len(seq.token_ids) for seq in self.seqs)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position, of the model's own distribution (before any sampling parameter)."""

    token_id: int
    logprob: float
    rank: int
    """1 is the most likely token."""
    top: tuple[tuple[int, float], ...]
    """The most likely (token id, logprob), best first, ties by lower id."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The token drawn for one `Sample`."""

    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None
    """Set if this row has no answer (logits that are not finite): only its request fails."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a runner made of a `StepPlan`. Draws are numbered from 0 in the order of the plan: sequence by sequence, and
    in each in the order of `SeqStep.samples`.
    """

    token_ids: Sequence[int]
    """Of each draw."""
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """By number of the draw, for those that asked."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """By number of the draw: rows without an answer, whose token means nothing."""
    prompt_logprobs: Mapping[SeqId, list[TokenLogprobs]] = field(default_factory=dict)
    """For each SeqStep that asked: one entry for each of its `prompt_targets`."""
    failed_blocks: frozenset[BlockId] = frozenset()
    """Of `swap_ins` and `loads`: those whose keys and values could not be had. They hold nothing of use."""

    @classmethod
    def of(
        cls,
        tokens: Sequence[SampledToken],
        prompt_logprobs: Mapping[SeqId, list[TokenLogprobs]] | None = None,
    ) -> "StepResult":
        """From what was drawn one by one."""
        return cls(
            [token.token_id for token in tokens],
            {i: token.logprobs for i, token in enumerate(tokens) if token.logprobs is not None},
            {i: token.error for i, token in enumerate(tokens) if token.error is not None},
            prompt_logprobs or {},
        )

    @property
    def tokens(self) -> list[SampledToken]:
        """What was drawn, one by one."""
        return [
            SampledToken(token_id, self.logprobs.get(i), self.errors.get(i))
            for i, token_id in enumerate(self.token_ids)
        ]


class Runner(Protocol):
    """Computes steps on one device over its own block pool. Implemented in `octavo.backends`.

    A runner that raises from `run` is broken as a whole: the engine fails every open request and ends.
    What concerns one sequence only is reported in `SampledToken.error`.
    """

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        ...

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        ...

    def run(self, plan: StepPlan) -> StepResult:
        """Do the copies, compute the tokens, draw the samples."""
        ...

    def close(self) -> None:
        """Give back threads and memory. Safe to call twice."""
        ...


class PageMemory(Protocol):
    """The block pool of a runner as pages of bytes, for other tiers of memory. What is written is what was read."""

    @property
    def page_bytes(self) -> int:
        """Bytes of one block: keys and values of all layers."""
        ...

    def read_page(self, block: BlockId) -> memoryview:
        """A copy of a block, all layers in one piece."""
        ...

    def write_page(self, block: BlockId, page: memoryview) -> None:
        """Fill a block. May be called by another thread while `Runner.run` computes, for blocks that it does not use."""
        ...


class PagedRunner(Runner, PageMemory, Protocol):
    """A runner whose pool other tiers can be joined to."""


@runtime_checkable
class GrowingPool(Protocol):
    """A runner whose block pool becomes real memory little by little."""

    def grow_pool(self) -> bool:
        """Make memory for blocks to come, a few milliseconds' worth, while there is nothing to compute.

        False: there is enough ahead of what is in use.
        """
        ...
