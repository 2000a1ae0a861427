"""What `LLM.generate` returns. Names are vLLM's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Logprob:
    """The log-probability of one token, in the model's own distribution."""

    logprob: float
    rank: int | None = None
    """1 is the most likely token."""
    decoded_token: str | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One generated sequence."""

    index: int
    """Which of the `n` samples."""
    text: str
    token_ids: list[int]
    """Includes the token that ended it."""
    cumulative_logprob: float | None
    """Sum over `token_ids`; None unless `logprobs` was asked for."""
    logprobs: list[dict[int, Logprob]] | None
    """For each token: itself first, then the most likely ones."""
    finish_reason: str | None
    """stop | length | abort | error"""
    stop_reason: int | str | None = None
    """The stop string or stop token id that ended it."""


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """When things happened, as `time.time()` tells it, and how often a sequence was preempted."""

    arrival_time: float
    first_token_time: float | None
    finished_time: float
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """All that became of one prompt."""

    request_id: str
    prompt: str | None
    """None for a prompt of token ids."""
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    """For each prompt token; the first is None, since nothing predicts it."""
    outputs: list[CompletionOutput]
    """`n` of them, by index."""
    finished: bool
    metrics: RequestMetrics | None = None
    num_cached_tokens: int | None = None
    error: str | None = None
    """Why this request failed inside the engine, while the others went on."""


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One beam that has ended."""

    tokens: list[int]
    """Of prompt and answer, with the end token."""
    text: str
    """Of both."""
    cum_logprob: float
    """Sum over the tokens of the answer."""
    score: float
    """`cum_logprob` with the length penalty: what beams are ordered by."""
    finish_reason: str
    """stop | length"""
    stop_reason: int | None = None
    """Always None: only end tokens of the model end a beam."""


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """What became of one prompt."""

    sequences: list[BeamSearchSequence]
    """`beam_width` of them, best first."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that the engine counts, under the name that a Prometheus endpoint gives it."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class NamedPrefixOutput:
    """A named prefix, and what it costs."""

    name: str
    cache_salt: str
    num_tokens: int
    num_blocks: int
    """Held: those that are full."""
    num_bytes: int
    expires_in_s: float | None
    """None: it stays until it is given up."""
