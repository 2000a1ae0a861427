"""What a sequence finds computed when it is let in, what it leaves behind, and for whom it waits.

A sequence that is let in, for the first time or after a preemption, begins where the prefix cache ends, or the tail that it
kept, or what it has in another tier. One
whose next block is just being computed by another of better rank waits for that block: to compute it too
would take the same work and a block more. Those behind it go on.
"""

from dataclasses import dataclass, replace

from octavo.core.block_tables import BlockTables, PrefixMatch
from octavo.core.prefix_cache import Key, PrefixChain
from octavo.core.request import Request
from octavo.core.sequence import Sequence
from octavo.core.tiers import Tiers

NO_MATCH = PrefixMatch()


@dataclass(frozen=True, slots=True)
class PrefixCounts:
    """Totals since the start, over prompts when they are first let in; what comes back is not counted."""

    num_queries: int = 0
    """Prompt tokens that were looked up."""
    num_hits: int = 0
    """Those that did not have to be computed."""


class PrefixReuse:
    """Follows sequences from door to door. Those without a chain neither find nor leave anything."""

    def __init__(self, tables: BlockTables, tiers: Tiers, *, enabled: bool) -> None:
        self._tables = tables
        self._tiers = tiers
        self._is_enabled = enabled
        self._computing: dict[Key, Sequence] = {}
        """Blocks that running sequences know all tokens of and are going to publish, and who does."""
        self.counts = PrefixCounts()

    def open(self, request: Request) -> None:
        """A request is accepted: its sequences share prefixes with those of the same salt."""
        if self._is_enabled:
            root = self._tables.cache.root(request.cache_salt)
            request.sequences[0].chain = PrefixChain(root, self._tables.block_size)

    def match(self, sequence: Sequence, request: Request) -> PrefixMatch | None:
        """What a waiting sequence would find; None: it waits for a block that is being computed."""
        chain, token_ids = sequence.chain, sequence.token_ids
        limit = request.reusable_len(sequence)
        if chain is None:
            return self._tiers.extended(sequence, self._held_by(sequence), limit)
        if self._is_computed_ahead_of(sequence, sequence.awaited):
            return None
        match = self._tables.match(chain, token_ids, limit)
        if match.num_tokens <= sequence.num_computed:
            match = self._held_by(sequence)
        match = self._tiers.extended(sequence, match, limit)
        number = len(match.blocks) + len(match.away)
        sequence.awaited = None
        if (number + 1) * self._tables.block_size <= limit:
            sequence.awaited = chain.key(number, token_ids)
            if self._is_computed_ahead_of(sequence, sequence.awaited):
                return None
        return match

    def enter(self, sequence: Sequence, request: Request, match: PrefixMatch) -> None:
        """A sequence is let in and begins after its match."""
        sequence.awaited = None
        sequence.num_computed = match.num_tokens + match.num_away_tokens
        if match.num_tokens:
            self._tables.attach(sequence.seq_id, match)
        if match.away:
            self._tiers.bring(sequence, match)
        else:
            self._tiers.forget(sequence)  # the pool has all that was swapped out
        if sequence.chain is not None:
            self._begin(sequence, sequence.chain, request, match)

    def _begin(
        self, sequence: Sequence, chain: PrefixChain, request: Request, match: PrefixMatch
    ) -> None:
        """What it knows and others cannot find yet, it is going to publish."""
        chain.num_published = len(match.blocks)
        for number in range(
            chain.num_published, len(sequence.token_ids) // self._tables.block_size
        ):
            self._computing.setdefault(chain.key(number, sequence.token_ids), sequence)
        if request.num_cached_tokens is None:
            request.num_cached_tokens = sequence.num_computed
            self.counts = replace(
                self.counts,
                num_queries=self.counts.num_queries + request.prompt_len,
                num_hits=self.counts.num_hits + sequence.num_computed,
            )

    def _held_by(self, sequence: Sequence) -> PrefixMatch:
        """What a sequence kept when it was preempted."""
        if sequence.num_computed == 0:
            return NO_MATCH
        blocks = self._tables.blocks(sequence.seq_id)
        return PrefixMatch(blocks, len(blocks), sequence.num_computed)

    def miss(self, request: Request, num_tokens: int) -> None:
        """Tokens that a new request found in another tier could not be had."""
        assert request.num_cached_tokens is not None, f"{request.request_id} was not let in"
        request.num_cached_tokens -= num_tokens
        self.counts = replace(self.counts, num_hits=self.counts.num_hits - num_tokens)

    def publish(self, sequence: Sequence) -> None:
        """A step is done: others may use the full blocks that the sequence has computed."""
        chain = sequence.chain
        if chain is None:
            return
        first, stop = chain.num_published, sequence.num_computed // self._tables.block_size
        if first == stop:
            return
        self._tables.publish(sequence.seq_id, chain, sequence.token_ids, sequence.num_computed)
        if self._tiers.stores:
            blocks = self._tables.blocks(sequence.seq_id)
            for number in range(first, stop):
                self._tiers.store(blocks[number], chain.key(number, sequence.token_ids))
        self._stop_computing(sequence, chain, first, stop)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """A sequence begins as another that has been let in."""
        if parent.chain is not None:
            child.chain = parent.chain.fork()

    def discard(self, sequence: Sequence) -> None:
        """A sequence has failed: nobody is to find what it computed in its last step."""
        if sequence.chain is not None:
            self._retract(sequence, sequence.chain)
            sequence.chain = None

    def leave(self, sequence: Sequence) -> None:
        """A running sequence is about to give up its blocks: others may use all that it has computed."""
        chain = sequence.chain
        if chain is None:
            return
        if sequence.num_computed:
            self._tables.publish_tail(
                sequence.seq_id, chain, sequence.token_ids, sequence.num_computed
            )
        self._retract(sequence, chain)
        chain.num_published = 0

    def _is_computed_ahead_of(self, sequence: Sequence, key: Key | None) -> bool:
        """Whether a running sequence of better rank is going to publish this block."""
        if key is None:
            return False
        owner = self._computing.get(key)
        return owner is not None and owner.rank < sequence.rank

    def _retract(self, sequence: Sequence, chain: PrefixChain) -> None:
        """Nobody is to wait any more for what the sequence would have published."""
        known = len(sequence.token_ids) // self._tables.block_size
        self._stop_computing(sequence, chain, chain.num_published, known)

    def _stop_computing(
        self, sequence: Sequence, chain: PrefixChain, first: int, stop: int
    ) -> None:
        for number in range(first, stop):
            key = chain.key(number, sequence.token_ids)
            if self._computing.get(key) is sequence:
                del self._computing[key]
