"""A buddy allocator: contiguous memory in pieces of powers of two (Knowlton, CACM 8(10), 1965)."""

from heapq import heappop, heappush


class BuddyAllocator:
    """`size` slots; a piece of 2^k slots begins at a multiple of 2^k and splits into two halves, its buddies.

    Memory that is no power of two begins as the largest pieces that fit, in descending order.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1; given: {size}")
        self.size = size
        self.num_free = size
        """Free slots, in whatever pieces."""
        self._free: list[list[int]] = [[] for _ in range(size.bit_length())]
        """For each k a heap of the beginnings of free pieces of 2^k slots; what was merged is still in it."""
        self._is_free: set[tuple[int, int]] = set()
        self._taken: dict[int, int] = {}
        begin = 0
        for order in reversed(range(size.bit_length())):
            if size & (1 << order):
                self._put(order, begin)
                begin += 1 << order

    def allocate(self, size: int) -> int | None:
        """The beginning of a free piece for `size` slots, the lowest of the smallest; None if there is none."""
        assert size >= 1, f"a piece of {size} slots"
        wanted = (size - 1).bit_length()
        for order in range(wanted, len(self._free)):
            begin = self._pop(order)
            if begin is None:
                continue
            while order > wanted:
                order -= 1
                self._put(order, begin + (1 << order))
            self._taken[begin] = wanted
            self.num_free -= 1 << wanted
            return begin
        return None

    def size_at(self, begin: int) -> int:
        """Slots of the taken piece that begins here."""
        return 1 << self._taken[begin]

    def free(self, begin: int) -> None:
        """Give a piece back; it merges with its buddy as often as that is free."""
        order = self._taken.pop(begin)
        self.num_free += 1 << order
        while True:
            buddy = begin ^ (1 << order)
            if (order, buddy) not in self._is_free:
                break
            self._is_free.remove((order, buddy))
            begin = min(begin, buddy)
            order += 1
        self._put(order, begin)

    def pieces(self) -> list[tuple[int, int]]:
        """(beginning, size) of all taken pieces, ascending."""
        return sorted((begin, 1 << order) for begin, order in self._taken.items())

    def _put(self, order: int, begin: int) -> None:
        self._is_free.add((order, begin))
        heappush(self._free[order], begin)

    def _pop(self, order: int) -> int | None:
        heap = self._free[order]
        while heap:
            begin = heappop(heap)
            if (order, begin) in self._is_free:
                self._is_free.remove((order, begin))
                return begin
        return None
