"""How many blocks the others would have more if sequences gave up theirs. Changes nothing in the tables."""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from octavo.core.block_tables import BlockTables
from octavo.core.sequence import Sequence, SequenceStatus
from octavo.core.step import NOTHING, BlockId


class Tail(NamedTuple):
    """The last blocks of a sequence, which it might give up."""

    num_kept: int
    """Blocks before it."""
    num_gained: int
    """Blocks that come free, or are not needed any more."""
    num_tokens: int
    """In it."""


class Relief:
    """What is gained by those who leave, one after another.

    All running sequences are to grow; so of n who share a partly filled block, n - 1 need a copy of it,
    and each who leaves saves one block: a copy, or at last the block itself.
    """

    def __init__(self, tables: BlockTables) -> None:
        self._tables = tables
        self._num_leaving: dict[BlockId, int] = {}
        self.num_slots = 0
        """Of the swap space, that those who leave take."""

    def of(self, victims: Iterable[Sequence]) -> int:
        """Blocks gained if these running sequences left too: those they alone hold, and those they would take."""
        return self._count(victims, dict(self._num_leaving))

    def leave(self, victims: Iterable[Sequence]) -> int:
        """These running sequences do leave. Returns the blocks gained."""
        return self._count(victims, self._num_leaving)

    def private_blocks(self, victims: Iterable[Sequence]) -> list[BlockId]:
        """The blocks that these hold, and nobody who stays."""
        holders = dict(self._num_leaving)
        for victim in victims:
            for block in self._blocks(victim):
                holders[block] = holders.get(block, 0) + 1
        return [block for block, count in holders.items() if count == self._tables.ref_count(block)]

    def tail_of(self, sequence: Sequence, num_blocks: int) -> Tail:
        """The shortest tail after a full block by which `num_blocks` blocks are gained, or all there is."""
        tables, blocks = self._tables, self._blocks(sequence)
        num_kept = tables.num_tokens(sequence.seq_id) // tables.block_size
        num_tokens = tables.num_tokens(sequence.seq_id) - num_kept * tables.block_size
        num_gained = 0
        if sequence.status is SequenceStatus.RUNNING:
            num_gained = self._growth_of(sequence)
        while num_kept and num_gained < num_blocks:
            num_kept -= 1
            block = blocks[num_kept]
            num_gained += tables.ref_count(block) == 1 + self._num_leaving.get(block, 0)
            num_tokens += tables.block_size
        return Tail(num_kept, num_gained, num_tokens)

    def cut(self, sequence: Sequence, num_kept: int) -> None:
        """This sequence, which does not run, keeps only so many blocks."""
        for block in self._blocks(sequence)[num_kept:]:
            self._num_leaving[block] = self._num_leaving.get(block, 0) + 1

    def _blocks(self, sequence: Sequence) -> "array[int]":
        tables = self._tables
        return tables.blocks(sequence.seq_id) if tables.num_tokens(sequence.seq_id) else NOTHING

    def _growth_of(self, sequence: Sequence) -> int:
        """Blocks that a running sequence is about to take, and its partly filled one."""
        tables = self._tables
        num_full = tables.num_tokens(sequence.seq_id) // tables.block_size
        return tables.blocks_for(len(sequence.token_ids)) - num_full

    def _count(self, victims: Iterable[Sequence], leaving: dict[BlockId, int]) -> int:
        tables = self._tables
        gained = 0
        for victim in victims:
            gained += self._growth_of(victim)
            num_full = tables.num_tokens(victim.seq_id) // tables.block_size
            for block in self._blocks(victim)[:num_full]:
                leaving[block] = leaving.get(block, 0) + 1
                gained += leaving[block] == tables.ref_count(block)
        return gained
