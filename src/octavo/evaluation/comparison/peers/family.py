"""The processes that a program has started in its turn: ended with it, and waited for, so that their CPU time is known."""

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from octavo.evaluation.processes import descendants

GRACE_S = 5.0
"""All of them have this long to clean up after themselves."""
_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Whose parent ends becomes this process's child, as prctl(2) says. A time that nobody has waited for counts nowhere."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


class Family:
    """Descendants of a process, held by descriptors: their numbers may be others' once they have ended."""

    def __init__(self, pid: int) -> None:
        """Those that it has now."""
        self._descriptors: list[int] = []
        for child in descendants(pid):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                self._descriptors.append(os.pidfd_open(child))

    def end(self) -> None:
        """Wait for those that are left, and kill who stays. The process itself must have ended, within `adopting_orphans`."""
        latest = time.monotonic() + GRACE_S
        for descriptor in self._descriptors:
            select.select([descriptor], [], [], max(0.0, latest - time.monotonic()))
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            with suppress(ChildProcessError):  # its parent had waited for it
                os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
            os.close(descriptor)
        self._descriptors.clear()
