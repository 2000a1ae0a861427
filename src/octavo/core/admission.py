"""Who may enter: what is refused at the door, and what a waiting sequence needs before it runs.

"Why was this refused?" is answered by `check_request`, "why does this wait?" by `shortage_of`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from octavo.core.block_tables import BlockTables, PrefixMatch
from octavo.core.request import Request
from octavo.core.sequence import RankedSequences, Sequence
from octavo.errors import CapacityError, ContextLengthError, InvalidParameterError, PromptError


@dataclass(frozen=True, slots=True)
class Limits:
    """How much runs at once, and how long a sequence gets."""

    max_num_batched_tokens: int
    """Tokens computed in one step."""
    max_num_seqs: int
    """Sequences that run at once."""
    max_model_len: int
    """Tokens of a sequence, prompt and output."""


class Shortage(NamedTuple):
    """What a waiting sequence lacks; zero or less: there is enough."""

    num_seats: int
    num_blocks: int


@dataclass(slots=True)
class Demand:
    """What the running sequences take to catch up, counted once a step and kept while others join them.

    Upper bounds that are cheap; who comes close to one counts exactly, with the functions below.
    """

    num_sequences: int
    num_seats: int
    num_tokens: int
    """Known tokens that are not computed."""

    @classmethod
    def of(cls, running: Iterable[Sequence]) -> "Demand":
        """Of all of these."""
        num_sequences = num_seats = num_tokens = 0
        for sequence in running:
            num_sequences += 1
            num_seats += sequence.num_seats
            num_tokens += len(sequence.token_ids) - sequence.num_computed
        return cls(num_sequences, num_seats, num_tokens)

    def add(self, sequence: Sequence) -> None:
        """One more runs."""
        self.num_sequences += 1
        self.num_seats += sequence.num_seats
        self.num_tokens += len(sequence.token_ids) - sequence.num_computed

    def most_blocks(self, block_size: int) -> int:
        """No more blocks than this are taken: each sequence may begin a block and copy one that it shares."""
        return self.num_tokens // block_size + 2 * self.num_sequences

    def leaves_room_for(
        self, candidate: Sequence, tables: BlockTables, limits: Limits, num_spare: int = 0
    ) -> bool:
        """Whether `shortage_of` is sure to find none, and a block and `num_spare` more are left."""
        num_blocks = tables.blocks_for(len(candidate.token_ids)) + self.num_seats + num_spare
        return (
            self.num_seats + candidate.num_seats <= limits.max_num_seqs
            and num_blocks + self.most_blocks(tables.block_size) < tables.num_available
        )


def check_request(request: Request, limits: Limits, tables: BlockTables) -> None:
    """Raise the UserError of a request that could not finish even if it ran alone. Changes nothing."""
    if request.prompt_len == 0:
        raise PromptError("the prompt is empty; it needs at least 1 token", parameter="prompt")
    if request.prompt_len >= limits.max_model_len:
        completion = request.params.max_tokens or 1
        raise ContextLengthError(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, you "
            f"requested {request.prompt_len + completion} tokens ({request.prompt_len} in the messages, "
            f"{completion} in the completion). Please reduce the length of the messages or completion.",
            parameter="prompt",
            value=request.prompt_len,
        )
    if request.params.n > limits.max_num_seqs:
        raise InvalidParameterError(
            f"n must be at most {limits.max_num_seqs} (--max-num-seqs); given: {request.params.n}",
            parameter="n",
            value=request.params.n,
        )
    max_tokens = request.max_tokens(limits.max_model_len)
    longest = request.prompt_len + max_tokens - 1  # the last token is drawn, but never computed
    if tables.blocks_for(longest) > tables.num_blocks:
        capacity = tables.num_blocks * tables.block_size
        raise CapacityError(
            f"a sequence of this request may need {longest} slots ({request.prompt_len} for the prompt, "
            f"{max_tokens} for new tokens, less the last), but the whole block pool has {capacity} "
            f"({tables.num_blocks} blocks of {tables.block_size}); reduce the prompt or max_tokens",
            parameter="max_tokens",
            value=longest,
        )


def tokens_left_for(
    candidate: Sequence, running: RankedSequences, demand: Demand, limits: Limits
) -> int:
    """Tokens of this step that those who go before a waiting sequence leave to it.

    These are all decoding sequences, and the longer pieces of those with a better rank.
    """
    left = limits.max_num_batched_tokens
    if not running or running.worst.rank < candidate.rank:
        return left - demand.num_tokens  # all others go first
    for sequence in running:
        pending = sequence.num_pending
        if pending == 1 or sequence.rank < candidate.rank:
            left -= pending
    return left


def fitting(
    candidate: Sequence,
    match: PrefixMatch,
    demand: Demand,
    running: RankedSequences,
    tables: BlockTables,
    limits: Limits,
    num_spare: int = 0,
) -> PrefixMatch | None:
    """What a waiting sequence may use of its match, if there are blocks and seats for the rest; else None.

    `num_spare` blocks more are to be left free.
    """
    if demand.leaves_room_for(candidate, tables, limits, num_spare):
        return match
    if demand.num_seats + candidate.num_seats > limits.max_num_seqs:
        return None
    shortage = shortage_of(candidate, running, tables, limits, num_shared=match.num_live)
    if shortage.num_blocks + num_spare < 0:
        return match
    # Where nothing is left there is no room for what a copy is made from.
    return match.without_tail(tables.block_size) if shortage.num_blocks + num_spare == 0 else None


def shortage_of(
    candidate: Sequence,
    running: Iterable[Sequence],
    tables: BlockTables,
    limits: Limits,
    *,
    num_shared: int = 0,
) -> Shortage:
    """What a waiting sequence lacks to compute all its known tokens beside those that run.

    `num_shared` of its blocks are held by others. What it finds in the cache counts as blocks to take, since
    it is taken from those that are available.

    The running ones keep the blocks for all that they know, and one more for each: else the newcomer
    would soon be preempted again, and its prompt computed for nothing. Alone it lacks nothing.
    """
    num_seats = candidate.num_seats - limits.max_num_seqs
    num_blocks = tables.blocks_for(len(candidate.token_ids)) - num_shared - tables.num_available
    num_blocks += blocks_to_catch_up(running, tables)
    num_running = sum(sequence.num_seats for sequence in running)
    return Shortage(num_seats + num_running, num_blocks + num_running)


def blocks_to_catch_up(running: Iterable[Sequence], tables: BlockTables) -> int:
    """Blocks that it takes to compute all that the running sequences know."""
    return tables.blocks_needed((sequence.seq_id, len(sequence.token_ids)) for sequence in running)
