"""Which blocks are free, which are kept for reuse, and how many tables hold each of the others."""

from array import array
from collections.abc import Callable, Iterable

from octavo.core.step import BlockId

RUN_LEN = 16
"""Every id divisible by this starts a run, which is kept whole for one owner as long as there are others."""


class IntegrityError(AssertionError):
    """The books do not add up: a defect of Octavo, never a mistake of a caller."""


def _forget_nothing(_block: BlockId) -> None:
    """For a pool that keeps no block."""


class BlockPool:
    """N blocks, each free, cached, or referenced by one or more tables; the pool knows only their ids.

    Free blocks wait in two lines, oldest first: those that start a run, and the rest. Who asks for a block
    gets the one after its last if that is free, else the start of a run, else any. So each owner gets runs
    of consecutive ids (attention reads those faster) even while many owners grow in turns; nothing needs
    them. Blocks past `_num_opened` were never handed out and stand in no line yet: opening a pool costs
    nothing, however large it is.

    A block that is marked with `keep` becomes cached, not free, when its last reference goes. Cached blocks
    wait in a third line, and only when no block is free the oldest of them are evicted.

    The lines are doubly linked through two flat arrays, so any block is taken from the middle in O(1).
    """

    def __init__(
        self, num_blocks: int, on_evict: Callable[[BlockId], None] = _forget_nothing
    ) -> None:
        """`on_evict` is told of each kept block that is given to a new owner."""
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1; given: {num_blocks}")
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        """Blocks that hold nothing."""
        self.num_cached = 0
        """Blocks that nobody references, kept for reuse."""
        self.num_evicted = 0
        """Kept blocks that were given to a new owner, since the start."""
        self._on_evict = on_evict
        self._num_opened = 0
        self._ref_counts = array("i", [0]) * num_blocks
        self._is_kept = bytearray(num_blocks)
        # Ids from N on are no blocks: they are the heads of the three lines, which close into rings there.
        self._starts, self._others, self._cached = range(num_blocks, num_blocks + 3)
        self._next = array("i", [0]) * (num_blocks + 3)
        self._prev = array("i", [0]) * (num_blocks + 3)
        for head in (self._starts, self._others, self._cached):
            self._next[head] = self._prev[head] = head

    @property
    def num_available(self) -> int:
        """Blocks that can be taken now: free ones, and cached ones when those are gone."""
        return self.num_free + self.num_cached

    @property
    def num_referenced(self) -> int:
        """Blocks that at least one table holds."""
        return self.num_blocks - self.num_free - self.num_cached

    def ref_count(self, block: BlockId) -> int:
        """How many tables hold this block."""
        return self._ref_counts[block]

    def is_kept(self, block: BlockId) -> bool:
        """Whether this block stays for reuse when nobody references it."""
        return self._is_kept[block] != 0

    def is_private(self, block: BlockId) -> bool:
        """Whether this referenced block has one owner and nobody else may find it: that one may write to it."""
        return self._ref_counts[block] == 1 and not self._is_kept[block]

    def take(self, count: int, *, after: BlockId | None = None) -> "array[int]":
        """Reference `count` blocks for a new owner, who may hold block `after` just before them.

        The caller has checked that `count` blocks are available.
        """
        assert count <= self.num_available, f"{count} blocks asked of {self.num_available}"
        for _ in range(count - self.num_free):
            self._evict_oldest()
        taken = array("i")
        for _ in range(count):
            after = self._choose(after)
            self._leave_line(after)
            self._ref_counts[after] = 1
            taken.append(after)
        self.num_free -= count
        return taken

    def share(self, blocks: Iterable[BlockId]) -> None:
        """Add one reference to each of these referenced or cached blocks."""
        for block in blocks:
            if self._ref_counts[block] == 0:
                assert self._is_kept[block], f"block {block} is free"
                self._leave_line(block)
                self.num_cached -= 1
            self._ref_counts[block] += 1

    def release(self, blocks: Iterable[BlockId]) -> list[BlockId]:
        """Drop one reference from each of these blocks, in this order; returns those that nobody holds now.

        The block released first is evicted first.
        """
        left: list[BlockId] = []
        for block in blocks:
            assert self._ref_counts[block] > 0, f"block {block} is free already"
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                left.append(block)
                self._join_line(block, self._line_of(block))
        num_kept = sum(self._is_kept[block] for block in left)
        self.num_cached += num_kept
        self.num_free += len(left) - num_kept
        return left

    def keep(self, block: BlockId) -> None:
        """Let this referenced block stay when nobody references it any more."""
        assert self._ref_counts[block] > 0, f"block {block} is free"
        self._is_kept[block] = 1

    def drop(self, block: BlockId) -> None:
        """Keep this block no longer."""
        assert self._is_kept[block], f"block {block} is not kept"
        self._is_kept[block] = 0
        if self._ref_counts[block] == 0:
            self._leave_line(block)
            self._join_line(block, self._line_of(block))
            self.num_cached -= 1
            self.num_free += 1

    def free_blocks(self) -> list[BlockId]:
        """All free blocks, each line in its order. O(N); for checks."""
        lines = [*self._line(self._starts), *self._line(self._others)]
        return lines + list(range(self._num_opened, self.num_blocks))

    def cached_blocks(self) -> list[BlockId]:
        """All cached blocks, the one that is evicted first in front. O(N); for checks."""
        return self._line(self._cached)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every block is free, cached or referenced, and once. O(N)."""
        free, cached = self.free_blocks(), self.cached_blocks()
        for name, line, count in (
            ("free", free, self.num_free),
            ("cached", cached, self.num_cached),
        ):
            if len(line) != count:
                raise IntegrityError(f"{len(line)} blocks in the {name} lines, {count} counted")
            if len(set(line)) != len(line):
                raise IntegrityError(f"a block is {name} twice")
            held = [block for block in line if self._ref_counts[block] != 0]
            if held:
                raise IntegrityError(f"blocks {held[:8]} are {name} and referenced")
            if any(self._is_kept[block] != (name == "cached") for block in line):
                raise IntegrityError(f"a {name} block is in the wrong line")
        num_referenced = sum(count > 0 for count in self._ref_counts)
        if num_referenced + len(free) + len(cached) != self.num_blocks:
            raise IntegrityError(
                f"{len(free)} free, {len(cached)} cached and {num_referenced} referenced blocks "
                f"are not {self.num_blocks}"
            )

    def _choose(self, after: BlockId | None) -> BlockId:
        if after is not None and after + 1 < self.num_blocks and self._is_free(after + 1):
            if after + 1 == self._num_opened:
                self._open_run()
            return after + 1
        if self._next[self._starts] == self._starts and self._num_opened < self.num_blocks:
            self._open_run()
        start = self._next[self._starts]
        return start if start != self._starts else self._next[self._others]

    def _evict_oldest(self) -> None:
        block = self._next[self._cached]
        self.drop(block)
        self.num_evicted += 1
        self._on_evict(block)

    def _is_free(self, block: BlockId) -> bool:
        return self._ref_counts[block] == 0 and not self._is_kept[block]

    def _open_run(self) -> None:
        opened = range(self._num_opened, min(self._num_opened + RUN_LEN, self.num_blocks))
        for block in opened:
            self._join_line(block, self._line_of(block))
        self._num_opened = opened.stop

    def _line_of(self, block: BlockId) -> int:
        """The head of the line where this block waits when nobody references it."""
        if self._is_kept[block]:
            return self._cached
        return self._others if block % RUN_LEN else self._starts

    def _join_line(self, block: BlockId, head: int) -> None:
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
                raise IntegrityError(f"the line is torn at block {block}")
            blocks.append(block)
            block = self._next[block]
        return blocks
