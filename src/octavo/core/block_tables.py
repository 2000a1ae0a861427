"""Which blocks hold which sequence's tokens. The only writer of block tables."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from octavo.core.block_pool import BlockPool, IntegrityError
from octavo.core.prefix_cache import PrefixCache, PrefixChain
from octavo.core.step import BlockCopy, BlockId, SeqId

Source: TypeAlias = int | bytes
"""Where a block is when it is not in the pool: a slot of the swap space, or the key of a stored prefix."""


class OutOfBlocksError(Exception):
    """The pool has fewer blocks to take than were asked for. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The beginning of a sequence that is in blocks already."""

    blocks: "array[int]" = field(default_factory=lambda: array("i"))
    """Full blocks, from the first token on."""
    num_live: int = 0
    """How many of them other sequences hold: these cost nothing; the rest leaves the cache, as if taken."""
    num_tokens: int = 0
    """In those blocks, and in the tail."""
    tail: BlockId | None = None
    """A block whose first tokens are the next ones of the sequence: to be copied."""
    away: tuple[Source, ...] = ()
    """Where the blocks after the full ones can be had from, instead of from a tail."""
    num_away_tokens: int = 0
    """In those."""

    def without_tail(self, block_size: int) -> "PrefixMatch":
        """The full blocks alone, and what follows them in another tier."""
        if self.tail is None:
            return self
        return PrefixMatch(self.blocks, self.num_live, len(self.blocks) * block_size)


@dataclass(slots=True)
class _Table:
    blocks: "array[int]" = field(default_factory=lambda: array("i"))
    """Position p is in slot p % B of block number p // B of these."""
    num_tokens: int = 0
    """Positions 0 .. num_tokens - 1 are used; all blocks but the last are full."""


class BlockTables:
    """The block tables of all sequences over one pool, and the counts that say how well it is used.

    Blocks are taken when tokens need them. After a fork both sequences hold the same blocks; who first
    writes to a shared, partly filled block gets a copy of its own (full blocks are never written again).
    So every block that a sequence may write to is held by it alone, and is not in the prefix cache.

    A block is published once its keys and values exist. From then on others find it, while it is held and
    after, until the pool gives it to a new owner.
    """

    def __init__(self, num_blocks: int, block_size: int, fingerprint: bytes = b"") -> None:
        """`fingerprint` stands for all that keys and values depend on besides tokens."""
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1; given: {block_size}")
        self.block_size = block_size
        self.num_copies = 0
        """Copies made before a write, since the start."""
        self.cache = PrefixCache(fingerprint)
        self._pool = BlockPool(num_blocks, on_evict=self.cache.remove)
        self._tables: dict[SeqId, _Table] = {}
        self._num_entries = 0
        self._num_slots_used = 0
        self._fill = array("i", [0]) * num_blocks
        """Slots of each block that hold a token."""
        self._copied_from: list[BlockId] = []
        """Blocks that only the copies of the step being planned still need."""

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return self._pool.num_free

    @property
    def num_cached(self) -> int:
        """Blocks that nobody holds, but that hold a beginning which a later sequence may have."""
        return self._pool.num_cached

    @property
    def num_available(self) -> int:
        """Blocks that can be taken now: the free and the cached ones."""
        return self._pool.num_available

    @property
    def num_evicted(self) -> int:
        """Cached blocks that were given to a new owner, since the start."""
        return self._pool.num_evicted

    @property
    def num_referenced(self) -> int:
        """Blocks that at least one sequence holds."""
        return self._pool.num_referenced

    @property
    def num_slots_used(self) -> int:
        """Slots of held blocks that hold a token; a shared block counts once."""
        return self._num_slots_used

    @property
    def num_saved_by_sharing(self) -> int:
        """Blocks that tables without sharing would hold in addition."""
        return self._num_entries - self._pool.num_referenced

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def blocks(self, seq_id: SeqId) -> "array[int]":
        """The block table of a sequence that has one. Read only; never changes: who grows gets a new one."""
        return self._tables[seq_id].blocks

    def num_tokens(self, seq_id: SeqId) -> int:
        """How many tokens this sequence's blocks hold; 0 if it has none."""
        table = self._tables.get(seq_id)
        return 0 if table is None else table.num_tokens

    def num_held_by(self, seq_ids: Iterable[SeqId]) -> int:
        """How many blocks these sequences hold together, each counted once."""
        tables = (self._tables.get(seq_id) for seq_id in seq_ids)
        return len({block for table in tables if table is not None for block in table.blocks})

    def ref_count(self, block: BlockId) -> int:
        """How many tables hold this block."""
        return self._pool.ref_count(block)

    def fill(self, block: BlockId) -> int:
        """How many slots of this held block hold a token."""
        return self._fill[block]

    def grows_in_place(self, seq_id: SeqId) -> bool:
        """Whether this sequence's next token needs no copy of a block that others hold or may find."""
        table = self._tables[seq_id]
        return not self._must_copy(table, table.num_tokens + 1)

    def blocks_needed(self, lengths: Iterable[tuple[SeqId, int]]) -> int:
        """Blocks that growing all these sequences to these lengths takes, copies included.

        Exact: where all who hold a shared block are going to write to it, the last writes in place.
        """
        needed = 0
        writers: dict[BlockId, int] = {}
        for seq_id, num_tokens in lengths:
            table = self._tables.get(seq_id)
            if table is None:
                needed -= -num_tokens // self.block_size
                continue
            needed += -(-num_tokens // self.block_size) - len(table.blocks)
            if self._must_copy(table, num_tokens):
                block = table.blocks[-1]
                writers[block] = writers.get(block, 0) + 1
                is_last = writers[block] == self._pool.ref_count(block)
                needed += self._pool.is_kept(block) or not is_last
        return needed

    def grow(self, seq_id: SeqId, num_tokens: int) -> BlockCopy | None:
        """Let a sequence, new or known, hold its first `num_tokens` tokens; the added ones may be written.

        Returns the copy that has to be made before anything is written, if others need its last block.
        Raises OutOfBlocksError, having changed nothing, if there are too few blocks to take.
        """
        table = self._tables.get(seq_id)
        if table is None:
            table = _Table()
        elif (
            # Nearly always: it ends in a block that it holds already, and alone.
            table.num_tokens < num_tokens <= len(table.blocks) * self.block_size
            and self._pool.is_private(table.blocks[-1])
        ):
            self._num_slots_used += num_tokens - table.num_tokens
            self._fill[table.blocks[-1]] += num_tokens - table.num_tokens
            table.num_tokens = num_tokens
            return None
        assert num_tokens >= table.num_tokens, f"{num_tokens} is less than {table.num_tokens}"
        must_copy = self._must_copy(table, num_tokens)
        num_new = -(-num_tokens // self.block_size) - len(table.blocks)
        if num_new + must_copy > self._pool.num_available:
            raise OutOfBlocksError(
                f"sequence {seq_id} needs {num_new + must_copy} blocks to hold {num_tokens} tokens; "
                f"available: {self._pool.num_available}"
            )
        self._tables[seq_id] = table
        copy = self._make_last_block_private(table) if must_copy else None
        if num_new:
            last = table.blocks[-1] if table.blocks else None
            taken = self._pool.take(num_new, after=last)
            for block in taken:
                self._fill[block] = 0
            table.blocks = table.blocks + taken
            self._num_entries += num_new
        self._fill_slots(table, num_tokens)
        return copy

    def shrink(self, seq_id: SeqId, num_tokens: int) -> None:
        """Let a sequence hold its first `num_tokens` tokens only, as if the last `grow` had not gone further."""
        table = self._tables[seq_id]
        assert num_tokens <= table.num_tokens, f"{num_tokens} is more than {table.num_tokens}"
        num_blocks = self.blocks_for(num_tokens)
        surplus = table.blocks[num_blocks:]
        if surplus:
            assert all(map(self._pool.is_private, surplus)), (
                f"sequence {seq_id} gives up shared blocks"
            )
            self._release(surplus)
            table.blocks = table.blocks[:num_blocks]
            self._num_entries -= len(surplus)
        last, fill = table.blocks[-1], num_tokens - (num_blocks - 1) * self.block_size
        if fill < self._fill[last]:
            assert self._pool.is_private(last), f"sequence {seq_id} gives up shared slots"
            self._set_fill(last, fill)
        table.num_tokens = num_tokens

    def fork(self, parent: SeqId, child: SeqId) -> None:
        """Give a new sequence all blocks of another. Takes no block: the two share them."""
        source = self._tables[parent]
        self._hold(child, source.blocks, source.num_tokens)

    def free(self, seq_id: SeqId) -> None:
        """Give back everything that a sequence holds, if it holds anything; its end is evicted first."""
        table = self._tables.pop(seq_id, None)
        if table is None:
            return
        self._num_entries -= len(table.blocks)
        self._release(reversed(table.blocks))

    def match(self, chain: PrefixChain, token_ids: "array[int]", limit: int) -> PrefixMatch:
        """How much of the first `limit` of these tokens, whose chain this is, is in blocks already."""
        blocks, num_live, number = array("i"), 0, 0
        while (number + 1) * self.block_size <= limit:
            block = self.cache.find(chain.key(number, token_ids))
            if block is None:
                break
            blocks.append(block)
            num_live += self._pool.ref_count(block) > 0
            number += 1
        start = number * self.block_size
        tail = self._match_tail(chain, token_ids, start, limit)
        if tail is None:
            return PrefixMatch(blocks, num_live, start)
        return PrefixMatch(blocks, num_live, start + tail[1], tail[0])

    def attach(self, seq_id: SeqId, match: PrefixMatch) -> None:
        """Let a sequence hold a match, and no longer what it held. It has to grow, which copies the tail, before `settle`."""
        blocks = match.blocks[:]
        if match.tail is not None:
            blocks.append(match.tail)
        before = self._tables.pop(seq_id, None)
        self._hold(seq_id, blocks, match.num_tokens)
        if before is not None:
            self._num_entries -= len(before.blocks)
            self._release(reversed(before.blocks))

    def cut(self, seq_id: SeqId, num_blocks: int) -> None:
        """Let a sequence keep only its first `num_blocks` blocks, fewer than it has and all full; its end is evicted first."""
        table = self._tables[seq_id]
        assert num_blocks < len(table.blocks), f"{num_blocks} of {len(table.blocks)} blocks"
        surplus, table.blocks = table.blocks[num_blocks:], table.blocks[:num_blocks]
        table.num_tokens = num_blocks * self.block_size
        self._num_entries -= len(surplus)
        self._release(reversed(surplus))
        if num_blocks == 0:
            del self._tables[seq_id]

    def settle(self) -> None:
        """The step is planned: nothing is taken any more that its copies read."""
        self._release(self._copied_from)
        self._copied_from.clear()

    def publish(
        self, seq_id: SeqId, chain: PrefixChain, token_ids: "array[int]", num_computed: int
    ) -> None:
        """Let others find the full blocks of the first `num_computed` tokens, whose keys and values exist.

        Where a block with the same content is known, the sequence goes over to that, unless it would take it from
        those that are available and give none back: others still hold its own.
        """
        table = self._tables[seq_id]
        size = self.block_size
        for number in range(chain.num_published, num_computed // size):
            key = chain.key(number, token_ids)
            block, twin = table.blocks[number], self.cache.find(key)
            if twin is None:
                parent = chain.parent(number, token_ids)
                tokens = token_ids[number * size : (number + 1) * size]
                self._keep(block, self.cache.add(parent, tokens, block, key))
            elif twin != block and (
                self._pool.ref_count(twin) > 0 or self._pool.ref_count(block) == 1
            ):
                self._add_references((twin,))
                table.blocks = table.blocks[:]  # a plan may hold the old one
                table.blocks[number] = twin
                self._release((block,))
            chain.num_published = number + 1

    def publish_tail(
        self, seq_id: SeqId, chain: PrefixChain, token_ids: "array[int]", num_computed: int
    ) -> None:
        """Let others find the partly filled last block of a sequence that is about to be freed."""
        number, num_tokens = divmod(num_computed, self.block_size)
        if num_tokens == 0:
            return
        block = self._tables[seq_id].blocks[number]
        tokens = token_ids[num_computed - num_tokens : num_computed]
        parent = chain.parent(number, token_ids)
        known = self.cache.find_tail(parent, tokens)
        is_shared = self._pool.ref_count(block) > 1 or self._pool.is_kept(block)
        if is_shared or (known is not None and known[1] == num_tokens):
            return
        self._set_fill(block, num_tokens)
        self._keep(block, self.cache.add(parent, tokens, block, None))

    def cached_blocks(self) -> list[BlockId]:
        """Blocks that nobody holds and a later sequence may have, the one that is evicted first in front. O(cached)."""
        return self._pool.cached_blocks()

    def forget_cached(self) -> None:
        """Make all cached blocks free. O(cached)."""
        for block in self.cached_blocks():
            self.cache.remove(block)
            self._pool.drop(block)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless pool, tables, cache and counts agree. O(N + all tables)."""
        self._pool.check_integrity()
        kept = {block for block in range(self.num_blocks) if self._pool.is_kept(block)}
        if self.cache.check_integrity() != kept:
            raise IntegrityError("the cache knows other blocks than the pool keeps")
        holders: dict[BlockId, int] = {}
        filled: dict[BlockId, int] = {}
        for seq_id, table in self._tables.items():
            if len(table.blocks) != self.blocks_for(table.num_tokens):
                raise IntegrityError(
                    f"sequence {seq_id}: {len(table.blocks)} blocks, {table.num_tokens} tokens"
                )
            for number, block in enumerate(table.blocks):
                num_tokens = min(self.block_size, table.num_tokens - number * self.block_size)
                holders[block] = holders.get(block, 0) + 1
                if filled.setdefault(block, num_tokens) != num_tokens:
                    raise IntegrityError(f"block {block} is shared at different lengths")
        for block, count in holders.items():
            if self._pool.ref_count(block) != count:
                raise IntegrityError(
                    f"block {block}: {count} tables, {self._pool.ref_count(block)} references"
                )
        books = (self.num_referenced, self._num_entries, self._num_slots_used)
        counted = (len(holders), sum(holders.values()), sum(filled.values()))
        if books != counted:
            raise IntegrityError(f"(referenced, entries, slots used) are {counted}, booked {books}")

    def _must_copy(self, table: _Table, num_tokens: int) -> bool:
        """Whether growing writes to a block that others hold or may find."""
        if table.num_tokens % self.block_size == 0 or num_tokens <= table.num_tokens:
            return False
        return not self._pool.is_private(table.blocks[-1])

    def _make_last_block_private(self, table: _Table) -> BlockCopy:
        shared = table.blocks[-1]
        before = table.blocks[-2] if len(table.blocks) > 1 else None
        private = self._pool.take(1, after=before)
        self._fill[private[0]] = 0
        if (
            self._pool.ref_count(shared) == 1
        ):  # only the cache has it: keep it until the step is planned
            self._copied_from.append(shared)
        else:
            self._pool.release((shared,))
        table.blocks = table.blocks[:-1] + private
        self.num_copies += 1
        return BlockCopy(src=shared, dst=private[0])

    def _match_tail(
        self, chain: PrefixChain, token_ids: "array[int]", start: int, limit: int
    ) -> tuple[BlockId, int] | None:
        stop = start + self.block_size
        number = start // self.block_size
        if start < limit < stop <= len(token_ids):
            block = self.cache.find(chain.key(number, token_ids))
            if block is not None:  # the whole block is known, but not all of it may be used
                return block, limit - start
        wanted = token_ids[start : min(stop, limit)]
        return self.cache.find_tail(chain.parent(number, token_ids), wanted)

    def _hold(self, seq_id: SeqId, blocks: "array[int]", num_tokens: int) -> None:
        assert seq_id not in self._tables, f"sequence {seq_id} has a table already"
        self._add_references(blocks)
        self._tables[seq_id] = _Table(blocks, num_tokens)
        self._num_entries += len(blocks)

    def _add_references(self, blocks: Iterable[BlockId]) -> None:
        for block in blocks:
            if self._pool.ref_count(block) == 0:
                self._num_slots_used += self._fill[block]
        self._pool.share(blocks)

    def _release(self, blocks: Iterable[BlockId]) -> None:
        for block in self._pool.release(blocks):
            self._num_slots_used -= self._fill[block]

    def _fill_slots(self, table: _Table, num_tokens: int) -> None:
        """All blocks but the last become full."""
        size = self.block_size
        first = table.num_tokens // size
        for number in range(first, len(table.blocks)):
            self._set_fill(table.blocks[number], min(size, num_tokens - number * size))
        table.num_tokens = num_tokens

    def _set_fill(self, block: BlockId, num_tokens: int) -> None:
        """Of a held block."""
        self._num_slots_used += num_tokens - self._fill[block]
        self._fill[block] = num_tokens

    def _keep(self, block: BlockId, useless: BlockId | None) -> None:
        self._pool.keep(block)
        if useless is not None:
            self._pool.drop(useless)
