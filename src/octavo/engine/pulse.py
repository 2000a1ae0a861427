"""A page of memory in which the engine shows that it is alive, and since when it has been in a step.

A shared page and not a message: it is written while a step runs, costs nothing to read, and never queues up.
Both processes use the machine's monotonic clock, which stands still while the machine sleeps.
"""

import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BEAT_INTERVAL_S = 1.0
_SIZE = 16
"""Two float64: the time of the last beat, and the start of the current step (0: none runs)."""


def create_pulse_file(path: Path) -> None:
    """Make the file that both sides map, readable by this user only."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(
            descriptor, 0, _SIZE
        )  # a full disk is an error here, and not a SIGBUS later
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class PulseReading:
    """Seconds. `step_s` is None when no step runs."""

    since_beat_s: float
    step_s: float | None


class Pulse:
    """The page, mapped. The engine writes it, the front end reads it; eight bytes are written at once."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _SIZE)
        self._times = memoryview(self._page).cast("d")

    def beat(self) -> None:
        """The engine process is alive."""
        self._times[0] = time.monotonic()

    def enter_step(self) -> None:
        """A step begins."""
        self._times[1] = time.monotonic()

    def leave_step(self) -> None:
        """The step has ended."""
        self._times[1] = 0.0

    def read(self) -> PulseReading:
        """What the engine last showed."""
        now, beat, step = time.monotonic(), self._times[0], self._times[1]
        return PulseReading(now - beat, now - step if step else None)

    def close(self) -> None:
        """Unmap the page."""
        self._times.release()
        self._page.close()


class OwnPauses:
    """Since when this process itself has run without a long pause.

    Where it stood still (a paused container, a busy machine) the other side most likely did too, and must have
    its time anew.
    """

    def __init__(self, longest_s: float) -> None:
        """`longest_s`: between two calls of `seconds_since`; more is a pause."""
        self._longest_s = longest_s
        self._called = self._since = time.monotonic()

    def seconds_since(self) -> float:
        """Seconds since the end of the last pause. To be called regularly."""
        now = time.monotonic()
        if now - self._called > self._longest_s:
            self._since = now
        self._called = now
        return now - self._since


class Heart(threading.Thread):
    """Beats once a second, beside the steps. Each beat also calls `check`."""

    def __init__(self, pulse: Pulse, check: Callable[[], None]) -> None:
        super().__init__(name="octavo-heart", daemon=True)
        self._pulse = pulse
        self._check = check
        self._stopped = threading.Event()

    def run(self) -> None:
        """Beat until stopped."""
        while True:
            self._pulse.beat()
            self._check()
            if self._stopped.wait(BEAT_INTERVAL_S):
                return

    def stop(self) -> None:
        """Stop beating and wait for the thread; the page may be closed afterwards."""
        self._stopped.set()
        self.join()
