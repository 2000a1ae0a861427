"""What a simulated machine does in a step, whoever manages its memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from octavo.planning.requests import SimRequest
from octavo.planning.work import StepWork

SequenceKey = tuple[str, int]
"""Request, and which of its answers."""


class MemoryUse(NamedTuple):
    """Where the slots of the KV memory are, each counted once: the first five are all of it."""

    tokens: int
    """Hold a token."""
    reserved: int
    """Set aside for tokens that the request is still going to have."""
    internal: int
    """Set aside for a request and never used by it."""
    external: int
    """Lost to the allocator: rounding, and holes that fit nobody."""
    free: int
    """Could be given to anybody."""
    saved: int = 0
    """Slots that the same requests would hold in addition if nothing were shared."""


class Counts(NamedTuple):
    """Totals since the start."""

    num_preemptions: int = 0
    """Sequences that had to give up their memory, all of it or a part."""
    num_dropped_tails: int = 0
    """Of these: those that gave up only their last pages."""
    num_prompt_tokens: int = 0
    """Tokens of prompts that were looked up in a cache of prefixes."""
    num_cached_tokens: int = 0
    """Those that were found there."""
    num_swaps: int = 0
    """Preempted sequences whose memory was written to the swap space."""


class CellState(Enum):
    """What a piece of the memory is used for."""

    FREE = 0
    TOKENS = 1
    SHARED = 2
    """Tokens that several sequences refer to."""
    RESERVED = 3
    """Empty, for tokens that will come."""
    WASTED = 4
    """Empty, and its owner will never fill it."""
    LOST = 5
    """Empty, and nobody may have it: rounding of the allocator."""
    CACHED = 6
    """Free, with tokens that the next request that begins so will find."""


class Cell(NamedTuple):
    """One page, or as many slots of contiguous memory, at one moment."""

    owner: str | None
    """A request; of a shared page, the first."""
    state: CellState


FREE_CELL = Cell(None, CellState.FREE)
CACHED_CELL = Cell(None, CellState.CACHED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step was."""

    work: StepWork
    memory: MemoryUse
    """While the step ran."""
    num_requests: int
    """Requests in the step."""
    tokens: Sequence[SequenceKey]
    """Who got a token."""
    ended: Sequence[str]
    """Requests that are done."""
    num_swapped_out: int = 0
    """Pages that left for the swap space with it."""
    num_swapped_in: int = 0
    """Pages that it brought back."""


class SteadySteps(Protocol):
    """Coming steps without a decision: all sequences get a token in each, none ends."""

    @property
    def num_requests(self) -> int:
        """Requests in each of the steps."""
        ...

    @property
    def keys(self) -> Sequence[SequenceKey]:
        """Who gets a token in each of the steps."""
        ...

    @property
    def has_queue(self) -> bool:
        """Whether somebody waits and cannot enter: who comes later waits behind, and changes nothing."""
        ...

    @property
    def num_steps(self) -> int:
        """How many there are."""
        ...

    def steps(self) -> Iterator[tuple[StepWork, MemoryUse]]:
        """What each of them is."""
        ...

    def skip(self, count: int) -> None:
        """Take the first `count` of them."""
        ...


class Batcher(Protocol):
    """Chooses who is computed in a step, and gives out the memory. Time is the simulator's matter."""

    @property
    def max_model_len(self) -> int:
        """Longest sequence."""
        ...

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        ...

    @property
    def counts(self) -> Counts:
        """What has come together so far."""
        ...

    def add(self, request: SimRequest) -> None:
        """A request has arrived. Raises UserError for one that can never run."""
        ...

    def step(self) -> Outcome:
        """Decide the next step and take it. There must be an open request."""
        ...

    def took(self, seconds: float, /) -> None:
        """How long the last step took, for those who go by it."""
        ...

    def steady(self) -> SteadySteps | None:
        """The coming steps, if the next holds no decision."""
        ...
