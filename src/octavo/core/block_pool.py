"""Which blocks are free, and how many tables hold each of the others."""

from array import array
from collections.abc import Iterable

from octavo.core.step import BlockId

RUN_LEN = 16
"""Every id divisible by this starts a run, which is kept whole for one owner as long as there are others."""


class IntegrityError(AssertionError):
    """The books do not add up: a defect of Octavo, never a mistake of a caller."""


class BlockPool:
    """N blocks, each either free or referenced by one or more tables; the pool knows only their ids.

    Free blocks wait in two lines, oldest first: those that start a run, and the rest. Who asks for a block
    gets the one after its last if that is free, else the start of a run, else any. So each owner gets runs
    of consecutive ids (attention reads those faster) even while many owners grow in turns; nothing needs
    them. Blocks past `_num_opened` were never handed out and stand in no line yet: opening a pool costs
    nothing, however large it is.

    The lines are doubly linked through two flat arrays, so any block is taken from the middle in O(1).
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1; given: {num_blocks}")
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        """Blocks that can be taken now; the others are referenced."""
        self._num_opened = 0
        self._ref_counts = array("i", [0]) * num_blocks
        # Ids N and N + 1 are no blocks: they are the heads of the two lines, which close into rings there.
        self._starts, self._others = num_blocks, num_blocks + 1
        self._next = array("i", [0]) * (num_blocks + 2)
        self._prev = array("i", [0]) * (num_blocks + 2)
        for head in (self._starts, self._others):
            self._next[head] = self._prev[head] = head

    @property
    def num_referenced(self) -> int:
        """Blocks that at least one table holds."""
        return self.num_blocks - self.num_free

    def ref_count(self, block: BlockId) -> int:
        """How many tables hold this block."""
        return self._ref_counts[block]

    def take(self, count: int, *, after: BlockId | None = None) -> "array[int]":
        """Reference `count` free blocks for a new owner, who may hold block `after` just before them.

        The caller has checked that `count` blocks are free.
        """
        assert count <= self.num_free, f"{count} blocks asked of {self.num_free}"
        taken = array("i")
        for _ in range(count):
            after = self._choose(after)
            self._leave_line(after)
            self._ref_counts[after] = 1
            taken.append(after)
        self.num_free -= count
        return taken

    def share(self, blocks: Iterable[BlockId]) -> None:
        """Add one reference to each of these referenced blocks."""
        for block in blocks:
            assert self._ref_counts[block] > 0, f"block {block} is free"
            self._ref_counts[block] += 1

    def release(self, blocks: Iterable[BlockId]) -> int:
        """Drop one reference from each of these blocks; returns how many of them are free now."""
        num_freed = 0
        for block in blocks:
            assert self._ref_counts[block] > 0, f"block {block} is free already"
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self._join_line(block)
                num_freed += 1
        self.num_free += num_freed
        return num_freed

    def free_blocks(self) -> list[BlockId]:
        """All free blocks, each line in its order. O(N); for checks."""
        lines = [*self._line(self._starts), *self._line(self._others)]
        return lines + list(range(self._num_opened, self.num_blocks))

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every block is either in the free lines, once, or referenced. O(N)."""
        free = self.free_blocks()
        if len(free) != self.num_free:
            raise IntegrityError(f"{len(free)} blocks in the free lines, {self.num_free} counted")
        if len(set(free)) != len(free):
            raise IntegrityError("a block is free twice")
        held = [block for block in free if self._ref_counts[block] != 0]
        if held:
            raise IntegrityError(f"blocks {held[:8]} are free and referenced")
        num_referenced = sum(count > 0 for count in self._ref_counts)
        if num_referenced + len(free) != self.num_blocks:
            raise IntegrityError(
                f"{len(free)} free and {num_referenced} referenced blocks are not {self.num_blocks}"
            )

    def _choose(self, after: BlockId | None) -> BlockId:
        if after is not None and after + 1 < self.num_blocks and self._ref_counts[after + 1] == 0:
            if after + 1 == self._num_opened:
                self._open_run()
            return after + 1
        if self._next[self._starts] == self._starts and self._num_opened < self.num_blocks:
            self._open_run()
        start = self._next[self._starts]
        return start if start != self._starts else self._next[self._others]

    def _open_run(self) -> None:
        opened = range(self._num_opened, min(self._num_opened + RUN_LEN, self.num_blocks))
        for block in opened:
            self._join_line(block)
        self._num_opened = opened.stop

    def _join_line(self, block: BlockId) -> None:
        head = self._others if block % RUN_LEN else self._starts
        last = self._prev[head]
        self._next[last] = self._prev[head] = block
        self._prev[block] = last
        self._next[block] = head

    def _leave_line(self, block: BlockId) -> None:
        before, behind = self._prev[block], self._next[block]
        self._next[before] = behind
        self._prev[behind] = before

    def _line(self, head: int) -> list[BlockId]:
        blocks: list[BlockId] = []
        block = self._next[head]
        while block != head:
            if self._prev[self._next[block]] != block or len(blocks) == self.num_blocks:
                raise IntegrityError(f"the free line is torn at block {block}")
            blocks.append(block)
            block = self._next[block]
        return blocks
