"""What the front end and the engine process say to each other (msgpack over a local socket).

Front end -> engine: Submit, Abort, AbortSequence, ClientGone, Drain. Engine -> front end: Loading*, then Ready, then StepOutputs; or EngineFailed.
"""

from array import array
from typing import TypeAlias

import msgspec

from octavo.core.sampling_params import SamplingParams


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A new request. `token_ids` holds the prompt as little-endian int32 bytes."""

    request_id: str
    token_ids: bytes
    params: SamplingParams
    seed: int
    priority: int = 0
    cache_salt: str = ""
    wants_kv_usage: bool = False
    """Whether its end is to say what it cost in pages."""
    is_beam: bool = False
    """Asks for log-probabilities to go on with: the limit for users (`--max-logprobs`) is not meant."""

    def prompt(self) -> "array[int]":
        """The prompt's token ids."""
        ids = array("i")
        ids.frombytes(self.token_ids)
        return ids


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop these requests and free what they hold. Unknown ids are requests that have ended already.

    The front end aborts when a client has gone, and when it has found stop strings in all sequences.
    """

    request_ids: list[str]


class AbortSequence(msgspec.Struct, frozen=True, tag=True):
    """Stop one sequence of a request, in which the front end has found a stop string; the others go on."""

    request_id: str
    index: int


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Take no new requests, finish those accepted, then exit 0. Those still open after `timeout_s` are aborted."""

    timeout_s: float


class ClientGone(msgspec.Struct, frozen=True, tag=True):
    """A client of the engine has ended without a word: abort its requests, and expect another in its place."""

    index: int


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Progress of loading, for /health and the terminal."""

    stage: str
    fraction: float


class LedgerLine(msgspec.Struct, frozen=True):
    """One line of the memory ledger."""

    name: str
    num_bytes: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine serves. What only it could tell."""

    model: str
    architecture: str
    vocab_size: int
    max_model_len: int
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_logprobs: int
    dtype: str
    kv_cache_dtype: str
    speculation: str
    """off, or the method: ngram."""
    isa: str
    num_threads: int
    prefix_caching: bool
    ledger: list[LedgerLine]


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """`core.step.TokenLogprobs` on the wire."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


class KvUsageReport(msgspec.Struct, frozen=True, array_like=True):
    """What a request cost in pages; a page that several of its sequences shared counts once."""

    peak_blocks: int
    block_seconds: float
    """Pages times the time of the steps for which they were held."""


class PromptComputed(msgspec.Struct, frozen=True, array_like=True):
    """The prompt of a request is computed; once, before its log-probabilities and its first token."""

    request_id: str
    num_cached_tokens: int
    """How many of its tokens were in the prefix cache."""


class SequenceOutput(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of one sequence of a request; with a finish reason, its last."""

    request_id: str
    index: int
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    """stop | length | abort | error"""
    stop_reason: int | None = None
    """The stop token id that ended it, if it was one of the request's own `stop_token_ids`."""


def merged(first: SequenceOutput, second: SequenceOutput) -> SequenceOutput:
    """Two outputs of one sequence as one. The first is used up."""
    first.token_ids.extend(second.token_ids)
    if first.logprobs is not None and second.logprobs is not None:
        first.logprobs.extend(second.logprobs)
    if second.finish_reason is None:
        return first
    return SequenceOutput(
        first.request_id,
        first.index,
        first.token_ids,
        first.logprobs,
        second.finish_reason,
        second.stop_reason,
    )


class PromptLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities of prompt positions 1 .. prompt_len - 1, sent once, before the first token."""

    request_id: str
    values: list[TokenLogprob]


class RequestEnd(msgspec.Struct, frozen=True, array_like=True):
    """Exactly one for every submitted request, its last word. `error` is set if it failed."""

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0
    """Tokens that preemptions made it compute again."""
    kv_usage: KvUsageReport | None = None
    """If it was asked for."""
    error: str | None = None
    error_type: str | None = None
    """Name of the class in `octavo.errors`."""
    error_parameter: str | None = None
    """Which parameter a user's mistake is about."""


class EngineStats(msgspec.Struct, frozen=True):
    """Totals since start, and the state after the last step."""

    num_running: int = 0
    num_waiting: int = 0
    num_blocks_total: int = 0
    num_blocks_referenced: int = 0
    num_blocks_cached: int = 0
    num_blocks_free: int = 0
    num_slots_used: int = 0
    """Slots of referenced blocks that hold a token."""
    num_slots_referenced: int = 0
    """Slots of referenced blocks: used ones and internal waste."""
    num_blocks_saved_by_sharing: int = 0
    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    num_drafts: int = 0
    """Guesses at the next tokens of a sequence."""
    num_draft_tokens: int = 0
    """Tokens of these."""
    num_accepted_tokens: int = 0
    """Those that were right."""
    num_preemptions: int = 0
    num_block_copies: int = 0
    num_blocks_evicted: int = 0
    num_prefix_queries: int = 0
    """Prompt tokens that were looked up in the prefix cache."""
    num_prefix_hits: int = 0
    """Those that were found."""
    num_dropped_tails: int = 0
    num_swaps: int = 0
    num_swap_slots: int = 0
    num_swap_slots_used: int = 0
    """Blocks that the swap space holds; `num_swap_slots` is what it can."""
    num_blocks_swapped_out: int = 0
    num_blocks_swapped_in: int = 0
    num_blocks_stored: int = 0
    num_blocks_loaded: int = 0
    num_blocks_failed: int = 0
    """Blocks that could not be had back and were computed again."""
    recompute_token_seconds: float = 0.0
    """To compute a token again, as measured; 0: not yet."""
    swap_page_seconds: float = 0.0
    """To write a page to the swap space and read it back, as measured; 0: not yet."""
    kv_waste_sum: float = 0.0
    """Sum over steps of (slots referenced - slots used) / slots referenced; divide by num_steps."""
    step_seconds: float = 0.0


class StepOutputs(msgspec.Struct, frozen=True, tag=True):
    """Everything that one step produced, in one message."""

    sequences: list[SequenceOutput]
    ends: list[RequestEnd]
    prompt_logprobs: list[PromptLogprobs]
    stats: EngineStats
    prompts: list[PromptComputed] = []


class EngineFailed(msgspec.Struct, frozen=True, tag=True):
    """The engine ends, with the reason; every open request has failed."""

    error_type: str
    message: str


ToEngine: TypeAlias = Submit | Abort | AbortSequence | ClientGone | Drain
FromEngine: TypeAlias = Loading | Ready | StepOutputs | EngineFailed
