"""A file that holds pages of preempted sequences. It has no name: whatever ends the process, nothing is left of it."""

import contextlib
import errno
import os
import shutil
import tempfile
import time
from pathlib import Path

from octavo.core.costs import RestoreCosts
from octavo.errors import ConfigError, TierError

PROBES = 3
"""Pages that are written and read to learn what it takes."""


class SwapFile:
    """Pages by slot. All its space is taken when it is opened, so that none can be lacking later."""

    def __init__(self, num_bytes: int, page_bytes: int, directory: Path | None = None) -> None:
        """`directory`: None for the system's temporary folder. Raises ConfigError if the space is not there."""
        folder = Path(tempfile.gettempdir()) if directory is None else directory
        self.num_slots = num_bytes // page_bytes
        self._page_bytes = page_bytes
        self._failed: set[int] = set()
        if self.num_slots == 0:
            raise ConfigError(
                f"swap_space must hold at least one page of {page_bytes} bytes; given: {num_bytes}"
            )
        size = self.num_slots * page_bytes
        try:
            free = shutil.disk_usage(folder).free
            if free < size:
                raise OSError(errno.ENOSPC, f"{free} bytes are free in {folder}")
            with contextlib.ExitStack() as opened:
                self._file = opened.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
                os.posix_fallocate(self._file.fileno(), 0, size)
                opened.pop_all()
        except OSError as error:
            raise ConfigError(
                f"swap_space takes {size} bytes in {folder}, which it cannot have: {error.strerror}"
            ) from error

    def write(self, slot: int, page: memoryview) -> None:
        """Raises TierError; then the slot cannot be read until it has been written again."""
        self._failed.add(slot)
        try:
            written = os.pwrite(self._file.fileno(), page, slot * self._page_bytes)
        except OSError as error:
            raise TierError(f"a page could not be swapped out: {error.strerror}") from error
        if written != self._page_bytes:
            raise TierError(
                f"a page was swapped out in part: {written} of {self._page_bytes} bytes"
            )
        self._failed.discard(slot)

    def read(self, slot: int) -> memoryview:
        """What was last written. Raises TierError."""
        if slot in self._failed:
            raise TierError(f"the page in slot {slot} was never swapped out")
        try:
            page = os.pread(self._file.fileno(), self._page_bytes, slot * self._page_bytes)
        except OSError as error:
            raise TierError(f"a page could not be swapped in: {error.strerror}") from error
        if len(page) != self._page_bytes:
            raise TierError(
                f"a page was swapped in in part: {len(page)} of {self._page_bytes} bytes"
            )
        return memoryview(page)

    def probe(self, costs: RestoreCosts) -> None:
        """Write and read a few pages, and tell what it took. Raises TierError."""
        page = memoryview(bytes(self._page_bytes))
        for slot in range(min(PROBES, self.num_slots)):
            start = time.perf_counter()
            self.write(slot, page)
            middle = time.perf_counter()
            self.read(slot)
            costs.learn_page_out(middle - start)
            costs.learn_page_in(time.perf_counter() - middle)

    def close(self) -> None:
        """Give back the space. Safe to call twice."""
        self._file.close()
