"""What a user asked for, how far it has come, and when it is done."""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from octavo.core.pooling import PooledPrompt, Pooling
from octavo.core.sampling_params import SamplingParams
from octavo.core.sequence import Rank, Sequence, SequenceStatus
from octavo.core.step import NOTHING, Sampling, SeqId, TokenLogprobs

_MASK64 = 2**64 - 1


class FinishReason(str, Enum):
    """Why a sequence has ended."""

    STOP = "stop"
    """It drew an end token of the model or a stop token of the request."""
    LENGTH = "length"
    """It reached max_tokens or the end of the context."""
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class StopRule:
    """When the sequences of a request end, told by their tokens alone."""

    end_token_ids: frozenset[int]
    """End the sequence, as the model means it; empty with `ignore_eos`."""
    stop_token_ids: frozenset[int]
    """End the sequence, as the user asked."""
    suppressed_token_ids: tuple[int, ...]
    """May not be drawn while fewer than `min_tokens` tokens are generated; ascending."""
    min_tokens: int
    max_tokens: int
    """Most tokens that are generated, the end of the context being considered."""

    @classmethod
    def of(
        cls, params: SamplingParams, end_token_ids: frozenset[int], max_tokens: int
    ) -> "StopRule":
        """The rule for these parameters and a model with these end tokens."""
        stop_token_ids = frozenset(params.stop_token_ids)
        return cls(
            end_token_ids=frozenset() if params.ignore_eos else end_token_ids,
            stop_token_ids=stop_token_ids,
            suppressed_token_ids=tuple(sorted(end_token_ids | stop_token_ids)),
            min_tokens=params.min_tokens,
            max_tokens=max_tokens,
        )

    def finish_after(
        self, token_id: int, output_index: int
    ) -> tuple[FinishReason | None, int | None]:
        """Whether this generated token is the last, and the user's stop token if it ended by one."""
        if output_index >= self.min_tokens:
            if token_id in self.end_token_ids:
                return FinishReason.STOP, None
            if token_id in self.stop_token_ids:
                return FinishReason.STOP, token_id
        if output_index + 1 >= self.max_tokens:
            return FinishReason.LENGTH, None
        return None, None


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and what to do with it. Becomes `params.n` sequences, which share the prompt's blocks."""

    request_id: str
    prompt_token_ids: "array[int]"
    """Read only."""
    params: SamplingParams
    seed: int
    priority: int = field(default=0, kw_only=True)
    """The lower is served first, under the policy `priority`."""
    cache_salt: str = field(default="", kw_only=True)
    """Only requests with the same salt share prefixes."""
    tenant: str = field(default="", kw_only=True)
    """Tenants who wait get equally many tokens."""
    pooling: Pooling | None = field(default=None, kw_only=True)
    """If set, the vector of the prompt is wanted."""

    sequences: tuple[Sequence, ...] = field(default=(), init=False)
    """`params.n` of them, once a scheduler has accepted the request."""
    stop_rule: StopRule = field(init=False)
    """Set when a scheduler accepts the request."""
    num_preemptions: int = field(default=0, init=False)
    num_recomputed_tokens: int = field(default=0, init=False)
    """Tokens that were computed, lost by preemption, and had to be computed again."""
    num_cached_tokens: int | None = field(default=None, init=False)
    """Prompt tokens that were in the prefix cache when the request was first let in; None before."""
    prompt_logprobs: list[TokenLogprobs] | None = field(init=False)
    """Of prompt positions 1, 2, ..., as far as they are known. None: not asked for, or delivered."""
    pooled: PooledPrompt | None = field(init=False)
    """The vector of the prompt, as far as it is known. None: not asked for, or delivered."""

    def __post_init__(self) -> None:
        self.prompt_logprobs = None if self.params.prompt_logprobs is None else []
        self.pooled = None
        if self.pooling is not None:
            self.pooled = PooledPrompt(self.pooling, self.prompt_len)

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def is_finished(self) -> bool:
        """Whether all sequences have ended."""
        return all(sequence.status is SequenceStatus.FINISHED for sequence in self.sequences)

    def max_tokens(self, max_model_len: int) -> int:
        """Most tokens that each sequence generates in a context of this length."""
        left = max_model_len - self.prompt_len
        return left if self.params.max_tokens is None else min(left, self.params.max_tokens)

    def num_tokens_left(self, sequence: Sequence) -> int:
        """Most tokens that one of its sequences may still generate."""
        return self.stop_rule.max_tokens - sequence.num_outputs

    def open(self, first_seq_id: SeqId, priority: int, arrival: int, rule: StopRule) -> None:
        """Make the sequences, with consecutive ids. The first computes the prompt for all."""
        n = self.params.n
        self.stop_rule = rule
        sampling = tuple(
            Sampling(
                first_seq_id + index,
                self.params,
                sample_seed(self.seed, index),
                self.prompt_len,
                rule.suppressed_token_ids,
            )
            for index in range(n)
        )
        self.sequences = tuple(
            Sequence(
                seq_id=first_seq_id + index,
                request_id=self.request_id,
                rank=Rank(priority, arrival, index),
                token_ids=self.prompt_token_ids,
                sampling=(sampling[index],) if index else sampling,
                num_seats=n if index == 0 else 1,
                status=SequenceStatus.FOLLOWING if index else SequenceStatus.UNCALLED,
            )
            for index in range(n)
        )

    def chunk_len(self, sequence: Sequence, budget: int) -> int:
        """How many pending tokens of a sequence to compute with this many left in the step.

        After a preemption a chunk ends where what is told of the prompt ends, so that nothing is told twice.
        """
        chunk = min(sequence.num_pending, budget)
        told = self._num_told
        if told is not None and told > sequence.num_computed:
            return min(chunk, told - sequence.num_computed)
        return chunk

    def reusable_len(self, sequence: Sequence) -> int:
        """How many of a sequence's known tokens need not be computed if their keys and values exist.

        The last one gives the logits to draw from, and all do of which something is still to be told.
        """
        limit, told = len(sequence.token_ids) - 1, self._num_told
        return limit if told is None else min(limit, told)

    @property
    def _num_told(self) -> int | None:
        """Prompt positions of which all is told that is wanted of each. None: nothing is wanted."""
        if self.prompt_logprobs is not None:
            return len(self.prompt_logprobs)
        if self.pooled is not None and self.pooled.pooling is Pooling.MEAN:
            return self.pooled.num_tokens
        return None

    def prompt_targets(self, start: int, stop: int) -> "array[int]":
        """The prompt tokens after positions start .. stop - 1 whose log-probabilities are still wanted."""
        if self.prompt_logprobs is None or start < len(self.prompt_logprobs):
            return NOTHING
        return self.prompt_token_ids[start + 1 : stop + 1]


def sample_seed(seed: int, index: int) -> int:
    """The seed of parallel sample `index` of a request: unsigned, 64 bits, its own for each."""
    return (seed if index == 0 else splitmix64(seed + index)) & _MASK64


def splitmix64(x: int) -> int:
    """First output of the SplitMix64 generator seeded with x: a bijection that mixes all 64 bits."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)
