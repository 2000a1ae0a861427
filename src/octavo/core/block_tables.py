"""Which blocks hold which sequence's tokens. The only writer of block tables."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.core.block_pool import BlockPool, IntegrityError
from octavo.core.step import BlockCopy, BlockId, SeqId


class OutOfBlocksError(Exception):
    """The pool has fewer free blocks than were asked for. Nothing has changed."""


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
    So every block that a sequence may write to is held by it alone.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1; given: {block_size}")
        self.block_size = block_size
        self.num_copies = 0
        self._pool = BlockPool(num_blocks)
        self._tables: dict[SeqId, _Table] = {}
        self._num_entries = 0
        self._num_slots_used = 0

    @property
    def num_blocks(self) -> int:
        """N: blocks in the pool."""
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return self._pool.num_free

    @property
    def num_referenced(self) -> int:
        """Blocks that at least one sequence holds."""
        return self._pool.num_referenced

    @property
    def num_slots_used(self) -> int:
        """Slots that hold a token; a shared block counts once."""
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

    def ref_count(self, block: BlockId) -> int:
        """How many tables hold this block."""
        return self._pool.ref_count(block)

    def blocks_needed(self, lengths: Iterable[tuple[SeqId, int]]) -> int:
        """Free blocks that growing all these sequences to these lengths takes, copies included.

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
            if self._writes_shared_block(table, num_tokens):
                block = table.blocks[-1]
                writers[block] = writers.get(block, 0) + 1
                needed += writers[block] < self._pool.ref_count(block)
        return needed

    def grow(self, seq_id: SeqId, num_tokens: int) -> BlockCopy | None:
        """Let a sequence, new or known, hold its first `num_tokens` tokens; the added ones may be written.

        Returns the copy that has to be made before anything is written, if its last block was shared.
        Raises OutOfBlocksError, having changed nothing, if too few blocks are free.
        """
        table = self._tables.get(seq_id)
        if table is None:
            table = _Table()
        elif (
            # Nearly always: it ends in a block that it holds already, and alone.
            table.num_tokens < num_tokens <= len(table.blocks) * self.block_size
            and self._pool.ref_count(table.blocks[-1]) == 1
        ):
            self._num_slots_used += num_tokens - table.num_tokens
            table.num_tokens = num_tokens
            return None
        assert num_tokens >= table.num_tokens, f"{num_tokens} is less than {table.num_tokens}"
        must_copy = self._writes_shared_block(table, num_tokens)
        num_new = -(-num_tokens // self.block_size) - len(table.blocks)
        if num_new + must_copy > self._pool.num_free:
            raise OutOfBlocksError(
                f"sequence {seq_id} needs {num_new + must_copy} blocks to hold {num_tokens} tokens; "
                f"free: {self._pool.num_free}"
            )
        self._tables[seq_id] = table
        copy = self._make_last_block_private(table) if must_copy else None
        if num_new:
            last = table.blocks[-1] if table.blocks else None
            table.blocks = table.blocks + self._pool.take(num_new, after=last)
            self._num_entries += num_new
        self._num_slots_used += num_tokens - table.num_tokens
        table.num_tokens = num_tokens
        return copy

    def shrink(self, seq_id: SeqId, num_tokens: int) -> None:
        """Let a sequence hold its first `num_tokens` tokens only, as if the last `grow` had not gone further."""
        table = self._tables[seq_id]
        assert num_tokens <= table.num_tokens, f"{num_tokens} is more than {table.num_tokens}"
        num_blocks = self.blocks_for(num_tokens)
        surplus = table.blocks[num_blocks:]
        if surplus:
            num_freed = self._pool.release(surplus)
            assert num_freed == len(surplus), f"sequence {seq_id} gives up blocks that others hold"
            table.blocks = table.blocks[:num_blocks]
            self._num_entries -= num_freed
        self._num_slots_used -= table.num_tokens - num_tokens
        table.num_tokens = num_tokens

    def fork(self, parent: SeqId, child: SeqId) -> None:
        """Give a new sequence all blocks of another. Takes no block: the two share them."""
        assert child not in self._tables, f"sequence {child} has a table already"
        source = self._tables[parent]
        self._pool.share(source.blocks)
        self._tables[child] = _Table(source.blocks, source.num_tokens)
        self._num_entries += len(source.blocks)

    def free(self, seq_id: SeqId) -> None:
        """Give back everything that a sequence holds, if it holds anything."""
        table = self._tables.pop(seq_id, None)
        if table is None:
            return
        num_blocks = len(table.blocks)
        unused = num_blocks * self.block_size - table.num_tokens
        frees_last = num_blocks > 0 and self._pool.ref_count(table.blocks[-1]) == 1
        num_freed = self._pool.release(table.blocks)
        self._num_entries -= num_blocks
        self._num_slots_used -= num_freed * self.block_size - (unused if frees_last else 0)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless pool, tables and counts agree. O(N + all tables)."""
        self._pool.check_integrity()
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

    def _writes_shared_block(self, table: _Table, num_tokens: int) -> bool:
        return (
            table.num_tokens % self.block_size != 0
            and num_tokens > table.num_tokens
            and self._pool.ref_count(table.blocks[-1]) > 1
        )

    def _make_last_block_private(self, table: _Table) -> BlockCopy:
        shared = table.blocks[-1]
        before = table.blocks[-2] if len(table.blocks) > 1 else None
        private = self._pool.take(1, after=before)
        self._pool.release((shared,))
        table.blocks = table.blocks[:-1] + private
        self._num_slots_used += table.num_tokens % self.block_size
        self.num_copies += 1
        return BlockCopy(src=shared, dst=private[0])
