"""One client's connection, with an end to waiting: for a reader that takes nothing, and for a request that does not come."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from octavo.server.http_errors import HttpError, raw_response
from octavo.server.without_upgrade import WithoutUpgrade

_LOGGER = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers, as far as they come after the connection's first packet with them."""
MIN_BODY_BYTES = 16 * 1024
"""What a client must send of a body in the time that it has, or else the end: 500 bytes a second by default."""
LOG_INTERVAL_S = 10.0
LATE_S = 0.5
"""By more than this a timer is late only if the whole process stood still."""
_CHECKS = 4
"""How often a full buffer is looked at in the time that a reader has."""


@dataclass(slots=True)
class ClientLimit:
    """How long a client may let the server wait. Counts those who take longer, and logs some of them."""

    timeout_s: float
    on_cut: Callable[[], None]
    _logged_at: float = -math.inf

    def cut(self, what: str) -> None:
        """A client took too long: `what` it did."""
        self.on_cut()
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_S:  # there may be thousands
            self._logged_at = now
            _LOGGER.warning(
                "cut a connection whose client %s for %g s (counted in octavo_slow_clients)",
                what,
                self.timeout_s,
            )


class BoundedConnection(WithoutUpgrade, HttpToolsProtocol):
    """A connection that is cut when its client lets the server wait for `limit.timeout_s`.

    Slow readers: the full buffer has not shrunk; while it is full nothing more is made for the client. Slow writers:
    line and headers of a request are not complete, or of its body neither MIN_BODY_BYTES nor the end has come; they are
    answered 408. Cutting looks to the rest of the server as if the client had gone away.
    """

    limit: ClassVar[ClientLimit]

    _answered: RequestResponseCycle | None = None
    """The request that is or was answered last; pipelined ones wait behind it."""
    _write_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _num_unchanged = 0
    _read_timer: asyncio.TimerHandle | None = None
    """Runs while a request is expected or incomplete."""
    _read_due = 0.0
    _in_head = False
    _in_body = False
    _num_head_bytes = 0
    _num_body_bytes = 0

    # the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come. It is expected to ask for something."""
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended. The request that is being answered hears of it, also if others wait behind it."""
        self._unwatch_writing()
        self._unwatch_reading()
        super().connection_lost(exc)
        answered = self._answered
        if answered is not None and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                self._refuse(431, f"The headers must have at most {MAX_HEAD_BYTES} bytes")
        elif self._read_timer is None and not self._is_answering():
            self._expect_request()  # line ends between requests are no request

    def send_400_response(self, msg: str) -> None:
        """The bytes are not HTTP. Not told in the middle of an answer: that would look like a part of it."""
        self._refuse(400, msg)

    def _is_answering(self) -> bool:
        return self._answered is not None and not self._answered.response_complete

    def _refuse(self, status: int, message: str) -> None:
        """Say why the request that is being read is refused, if nothing else is being said, and close."""
        if self.transport.is_closing():
            return
        if self._in_body:
            can_be_told = self._answered is self.cycle and not self.cycle.response_started
        else:
            can_be_told = not self._is_answering()
        if can_be_told:
            self.transport.write(raw_response(HttpError(status, message)))
        self.transport.close()

    # requests

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._num_head_bytes = True, 0
        self._expect_request()

    def on_headers_complete(self) -> None:
        """Its body begins, if it has one."""
        self._in_head, self._in_body, self._num_body_bytes = False, True, 0
        super().on_headers_complete()
        if not self.pipeline:
            self._answered = self.cycle

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is complete."""
        self._in_body = False
        self._unwatch_reading()
        super().on_message_complete()

    def _expect_request(self) -> None:
        self._unwatch_reading()
        self._read_timer = self.loop.call_later(self.limit.timeout_s, self._check_reading)
        self._read_due = self._read_timer.when()

    def _unwatch_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reading(self) -> None:
        is_behind = self._is_answering() and not (self._in_body and self._answered is self.cycle)
        is_late = self.loop.time() > self._read_due + LATE_S  # what came meanwhile is not read yet
        if is_late or is_behind or (self._in_body and self._num_body_bytes >= MIN_BODY_BYTES):
            self._num_body_bytes = 0
            self._expect_request()  # it waits for an earlier answer, or comes as it should
            return
        self._read_timer = None
        if self._in_head or self._in_body:
            self.limit.cut("sent too little of its request")
            self._refuse(408, f"The request did not come within {self.limit.timeout_s:g} s")
        else:
            self.transport.close()  # nothing was begun

    # answers

    def on_response_complete(self) -> None:
        """An answer is complete; the next request that waits is the one to be answered."""
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The buffer is full."""
        super().pause_writing()
        # The size is taken at the first check: now, part of what was written is not counted yet.
        self._unsent, self._num_unchanged = 0, 0
        self._watch_writing()

    def resume_writing(self) -> None:
        """The reader has taken most of it."""
        super().resume_writing()
        self._unwatch_writing()

    def _watch_writing(self) -> None:
        self._unwatch_writing()
        interval_s = self.limit.timeout_s / _CHECKS
        self._write_timer = self.loop.call_later(interval_s, self._check_writing)

    def _unwatch_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_writing(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._num_unchanged = self._num_unchanged + 1 if unsent == self._unsent else 0
        self._unsent = unsent
        if self._num_unchanged < _CHECKS:
            self._watch_writing()
            return
        self.limit.cut("took nothing of its answer")
        self.transport.abort()


def connection_with(client_limit: ClientLimit) -> type[BoundedConnection]:
    """The class that a server makes its connections of."""

    class Connection(BoundedConnection):
        limit = client_limit

    return Connection
