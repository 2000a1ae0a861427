"""When requests that were given a time have to be done."""

import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush

MOST_STALE = 1024
"""Entries of requests that have ended, before they are thrown out."""


class Deadlines:
    """The deadlines of open requests. Adding and ending one is O(log n), asking whether one has passed O(1)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._timeouts: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def add(self, request_id: str, timeout_s: float) -> None:
        """A request has this long from now on."""
        self._timeouts[request_id] = timeout_s
        heappush(self._heap, (self._clock() + timeout_s, request_id))

    def end(self, request_id: str) -> None:
        """A request has ended, whether it had a deadline or not."""
        if self._timeouts.pop(request_id, None) is None:
            return
        if len(self._heap) > MOST_STALE + 2 * len(self._timeouts):
            self._heap = [entry for entry in self._heap if entry[1] in self._timeouts]
            heapify(self._heap)

    def take_passed(self) -> list[tuple[str, float]]:
        """The requests whose time has passed, each once, and how long they had."""
        passed: list[tuple[str, float]] = []
        if not self._heap:
            return passed
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            _, request_id = heappop(self._heap)
            timeout_s = self._timeouts.pop(request_id, None)
            if timeout_s is not None:
                passed.append((request_id, timeout_s))
        return passed
