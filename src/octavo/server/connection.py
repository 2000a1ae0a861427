"""One client's connection, with an end to waiting for a reader that takes nothing."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LOGGER = logging.getLogger(__name__)

_CHECKS = 4
"""How often a full buffer is looked at in the time that a reader has."""


@dataclass(frozen=True, slots=True)
class ReaderLimit:
    """How long a reader may take nothing, and what is told when one has taken that long."""

    timeout_s: float
    on_cut: Callable[[], None]


class BoundedConnection(HttpToolsProtocol):
    """A connection that is cut when its full buffer has not shrunk for `limit.timeout_s`.

    While the buffer is full nothing more is made for the client. Cutting looks to the rest of the server as if the
    client had gone away.
    """

    limit: ClassVar[ReaderLimit]

    _timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _num_unchanged = 0

    def pause_writing(self) -> None:
        """The buffer is full."""
        super().pause_writing()
        # The size is taken at the first check: now, part of what was written is not counted yet.
        self._unsent, self._num_unchanged = 0, 0
        self._wait()

    def resume_writing(self) -> None:
        """The reader has taken most of it."""
        super().resume_writing()
        self._unwatch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._unwatch()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._unwatch()
        self._timer = self.loop.call_later(self.limit.timeout_s / _CHECKS, self._check)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._num_unchanged = self._num_unchanged + 1 if unsent == self._unsent else 0
        self._unsent = unsent
        if self._num_unchanged < _CHECKS:
            self._wait()
            return
        _LOGGER.warning(
            "cut a connection whose reader took nothing for %.0f s", self.limit.timeout_s
        )
        self.limit.on_cut()
        self.transport.abort()


def connection_with(reader_limit: ReaderLimit) -> type[BoundedConnection]:
    """The class that a server makes its connections of."""

    class Connection(BoundedConnection):
        limit = reader_limit

    return Connection
