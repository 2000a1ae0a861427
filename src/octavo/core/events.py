"""What the scheduler tells of a request. The last word on every accepted request is one `RequestEndEvent`."""

from array import array
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from octavo.core.request import FinishReason
from octavo.core.step import TokenLogprobs


class TokenEvent(NamedTuple):
    """A sequence has a new token; with a finish reason, its last. A tuple, as `SeqStep`: there are many."""

    request_id: str
    index: int  # type: ignore[assignment]  # hides a method of tuples that nobody needs here
    """Which of the request's sequences."""
    token_id: int
    logprobs: TokenLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: int | None
    """The one of the request's own `stop_token_ids` that ended the sequence, if it was one."""


@dataclass(frozen=True, slots=True)
class PromptEvent:
    """The prompt of a request is computed; once, before its log-probabilities and the first token."""

    request_id: str
    num_cached_tokens: int
    """How many of its tokens were in the prefix cache."""


@dataclass(frozen=True, slots=True)
class PromptLogprobsEvent:
    """Log-probabilities of prompt positions 1 .. prompt_len - 1; once, before the first token."""

    request_id: str
    values: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class PooledEvent:
    """The vector of a prompt; once, before the first token."""

    request_id: str
    vector: "array[float]"


@dataclass(frozen=True, slots=True)
class SequenceEndEvent:
    """A sequence ends without a new token: aborted or failed."""

    request_id: str
    index: int
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class RequestEndEvent:
    """All sequences of a request have ended, and its blocks are free."""

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    num_recomputed_tokens: int = 0
    error: str | None = None
    error_type: str | None = None
    """Name of the class in `octavo.errors`."""
    error_parameter: str | None = None
    """Which parameter a user's mistake is about."""


Event: TypeAlias = (
    PromptEvent
    | TokenEvent
    | PromptLogprobsEvent
    | PooledEvent
    | SequenceEndEvent
    | RequestEndEvent
)
