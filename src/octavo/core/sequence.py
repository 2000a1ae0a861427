"""One sequence of tokens, and its place among all others."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from octavo.core.prefix_cache import Key, PrefixChain
from octavo.core.step import Sampling, SeqId


class Rank(NamedTuple):
    """Who comes first: the smaller rank is admitted first and gives up its pages last. Unique."""

    priority: int
    """The request's priority class; 0 for all under first come, first served."""
    arrival: int
    """Number of the request in order of arrival. Preemption does not change it."""
    sample_index: int
    """Number of the sequence in its request."""


class SequenceStatus(Enum):
    """Where a sequence is in its life."""

    FOLLOWING = "following"
    """Waits for the first sequence of its request to compute the prompt that they share."""
    WAITING = "waiting"
    """Holds no blocks; waits for them in order of rank."""
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Known tokens, and how many of them are computed; each step lets computed catch up with known.

    A new prompt, a decoding sequence and a preempted one differ in nothing but these two numbers.
    """

    seq_id: SeqId
    request_id: str
    rank: Rank
    token_ids: "array[int]"
    """Known tokens: the prompt, then what was generated. Grows only at the end."""
    prompt_len: int = field(init=False)
    sampling: tuple[Sampling, ...] = ()
    """Who draws from the logits of its last known token: the sequence itself or, while all sequences of the request
    still share its prompt, each of them."""
    num_seats: int = 1
    """Sequences that it will be once its prompt is computed: it must be admitted as that many."""
    num_computed: int = 0
    """Tokens whose keys and values are in its blocks, from the first on."""
    status: SequenceStatus = SequenceStatus.WAITING
    num_lost: int = 0
    """While it waits after a preemption: tokens that were computed before it."""
    is_arriving: bool = False
    """Runs, but computes nothing in this step: its pages come from another tier."""
    chain: PrefixChain | None = None
    """The keys of its full blocks; None: it neither uses the prefix cache nor adds to it."""
    awaited: Key | None = None
    """While it waits: the first block that it did not find."""

    def __post_init__(self) -> None:
        self.prompt_len = len(self.token_ids)

    @property
    def num_pending(self) -> int:
        """Known tokens that are not computed; at least 1 while the sequence lives."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_outputs(self) -> int:
        """Generated tokens."""
        return len(self.token_ids) - self.prompt_len

    def append(self, token_id: int) -> None:
        """Add a generated token."""
        if len(self.token_ids) == self.prompt_len:
            # Until here the request and all its sequences share one array of the prompt.
            self.token_ids = self.token_ids[:]
        self.token_ids.append(token_id)


_rank = attrgetter("rank")  # C, where a lambda would be a call of Python


class RankedSequences:
    """Sequences in order of rank, best first."""

    __slots__ = ("_ranked",)

    def __init__(self) -> None:
        self._ranked: list[Sequence] = []

    @property
    def worst(self) -> Sequence:
        """The last; there must be one."""
        return self._ranked[-1]

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at its place."""
        insort(self._ranked, sequence, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in here."""
        place = bisect_left(self._ranked, sequence.rank, key=_rank)
        assert self._ranked[place] is sequence, f"sequence {sequence.seq_id} is not in its place"
        del self._ranked[place]

    def __len__(self) -> int:
        return len(self._ranked)

    def __getitem__(self, place: int) -> Sequence:
        return self._ranked[place]

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._ranked)

    def __reversed__(self) -> Iterator[Sequence]:
        return reversed(self._ranked)
