"""One step as a value: what the scheduler decided, and what the runner made of it.

A `StepPlan` holds all that a runner needs; a runner keeps no state about requests between steps.
Token ids and block tables are `array('i')`: flat, 4 bytes an entry, readable from C++ without a copy.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from octavo.core.sampling_params import SamplingParams

BlockId = int
SeqId = int
"""Number of a sequence, unique in the life of a scheduler."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One token to draw from the logits of a `SeqStep`'s last token."""

    seq_id: SeqId
    """The sequence that receives the token. Parallel samples of a prompt draw from one row of logits."""
    params: SamplingParams
    seed: int
    """64 bits; with `output_index` it fixes the random number, whatever else is in the batch."""
    output_index: int
    """How many tokens this sequence has generated before this one."""
    token_ids: "array[int]"
    """Prompt and generated tokens so far, for penalties and bad words. Read only."""
    prompt_len: int
    """How many of `token_ids` are the prompt."""
    suppressed_token_ids: tuple[int, ...] = ()
    """May not be drawn in this step: the end tokens while `min_tokens` is not reached."""


@dataclass(frozen=True, slots=True)
class SeqStep:
    """The part of one sequence in a step."""

    seq_id: SeqId
    token_ids: "array[int]"
    """Tokens whose keys and values this step computes."""
    start: int
    """Position of the first of them; all earlier positions are in the blocks already."""
    block_table: "array[int]"
    """Block ids that cover positions 0 .. start + len(token_ids) - 1. Read only; valid during the step."""
    samples: tuple[Sample, ...] = ()
    """Empty: a prompt chunk that is not the last."""
    num_prompt_logprobs: int | None = None
    """If set, also the log-probability of each *next prompt token* after these positions, with this many
    alternatives. `prompt_targets` holds those next tokens."""
    prompt_targets: "array[int]" = field(default_factory=lambda: array("i"))
    """The prompt token that follows each of `token_ids`; one shorter at the end of the prompt."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the keys and values of block `src` to block `dst`, all layers, before anything is computed."""

    src: BlockId
    dst: BlockId


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything that one step does. Can be printed, saved and replayed."""

    step_id: int
    seqs: tuple[SeqStep, ...]
    copies: tuple[BlockCopy, ...] = ()

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

    seq_id: SeqId
    token_id: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None
    """Set if this row has no answer (logits that are not finite): only its request fails."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a runner made of a `StepPlan`."""

    tokens: Sequence[SampledToken]
    """One for each `Sample`, in the order of the plan."""
    prompt_logprobs: dict[SeqId, list[TokenLogprobs]] = field(default_factory=dict)
    """For each SeqStep that asked: one entry for each of its `prompt_targets`."""


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
