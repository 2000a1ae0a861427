"""One client's connection, with an end to waiting for a reader that takes nothing."""

import asyncio
import logging
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LOGGER = logging.getLogger(__name__)


def bounded_connection(
    slow_client_timeout_s: float, on_slow_client: Callable[[], None]
) -> type[HttpToolsProtocol]:
    """A connection that is cut when its full buffer has not shrunk for `slow_client_timeout_s`.

    While the buffer is full nothing more is made for the client. Cutting looks to the rest of the server as if the
    client had gone away.
    """

    class Connection(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch(self.transport.get_write_buffer_size())

        def resume_writing(self) -> None:
            super().resume_writing()
            self._unwatch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def _watch(self, unsent: int) -> None:
            self._unwatch()
            self._deadline = self.loop.call_later(slow_client_timeout_s, self._check, unsent)

        def _unwatch(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _check(self, unsent_before: int) -> None:
            unsent = self.transport.get_write_buffer_size()
            if unsent < unsent_before:
                self._watch(unsent)
                return
            self._deadline = None
            _LOGGER.warning(
                "cut a connection whose reader took nothing for %.0f s", slow_client_timeout_s
            )
            on_slow_client()
            self.transport.abort()

    return Connection
