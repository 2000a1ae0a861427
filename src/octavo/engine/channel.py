"""The two ends of the local socket between the front end and the engine process, and the messages on it.

The front end binds, the engine connects: what the engine sends before the front end listens is kept. One message is
one frame of msgpack. Nothing here unpickles.
"""

import contextlib
from collections.abc import Iterator
from math import ceil
from typing import Protocol

import msgspec
import zmq

from octavo.engine.endpoint import Endpoint
from octavo.engine.messages import FromEngine, ToEngine
from octavo.errors import EngineDeadError

MAX_QUEUED_STEPS = 1000
"""Steps that the front end may lag behind before the engine waits for it."""
RECONNECT_MS = 10
LINGER_MS = 30_000
"""How long a closing engine waits for the front end to take its last messages: one may still be starting."""


class Channel(Protocol):
    """What the engine speaks to: one client, or several as if they were one."""

    def send(self, message: FromEngine) -> None:
        """Tell what has happened."""

    def receive(self, *, wait: bool, most_s: float | None = None) -> list[ToEngine]:
        """All messages that have come; with `wait` at least one, or after `most_s` none."""
        ...

    def close(self) -> None:
        """Hand over what is queued, then close."""


class EngineEnd:
    """The engine's end. Blocks: the engine has nothing else to do."""

    def __init__(self, endpoint: Endpoint, index: int = 0) -> None:
        """`index`: of the client at the other end."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.SNDHWM, MAX_QUEUED_STEPS)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.connect(endpoint.address(index))

    @property
    def socket(self) -> "zmq.Socket[bytes]":
        """For who waits for several."""
        return self._socket

    def send(self, message: FromEngine) -> None:
        """Queue a message; waits while the front end lags too far behind."""
        self._socket.send(self._encode(message), copy=True)

    def offer(self, message: FromEngine) -> None:
        """Queue a message that may as well be lost, unless the front end lags too far behind."""
        with contextlib.suppress(zmq.Again):
            self._socket.send(self._encode(message), zmq.DONTWAIT)

    def receive(self, *, wait: bool, most_s: float | None = None) -> list[ToEngine]:
        """All messages that have come; with `wait` at least one (a blocked thread, no polling), or after `most_s` none."""
        messages: list[ToEngine] = []
        if wait and (most_s is None or self._socket.poll(ceil(most_s * 1000))):
            messages.append(self._decode.decode(self._socket.recv()))
        return messages + [self._decode.decode(frame) for frame in _frames(self._socket)]

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Hand over what is queued within `linger_ms`, then close."""
        self._socket.close(linger_ms)
        self._context.term()


class ClientEnd:
    """The front end's end. Never blocks; `fileno` becomes readable when messages may have come."""

    def __init__(self, endpoint: Endpoint, index: int = 0) -> None:
        """`index`: which of the engine's clients this is."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, MAX_QUEUED_STEPS)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(endpoint.address(index))

    def fileno(self) -> int:
        """Readable when messages may have come: after that, and after every `send`, call `receive`."""
        return int(self._socket.getsockopt(zmq.FD))

    def encode(self, message: ToEngine) -> bytes:
        """The message as a frame. Raises OverflowError, TypeError or UnicodeEncodeError for what msgpack cannot hold."""
        return self._encode(message)

    def send(self, frame: bytes) -> None:
        """Queue a frame for the engine, however many wait. Raises EngineDeadError if the engine has gone, or this end."""
        if self._socket.closed:
            raise EngineDeadError("this end of the channel to the engine is closed")
        try:
            self._socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:
            raise EngineDeadError("the engine process has ended") from None

    def receive(self) -> list[FromEngine]:
        """All messages that have come; possibly none, and none once closed."""
        if self._socket.closed:
            return []
        return [self._decode.decode(frame) for frame in _frames(self._socket)]

    def close(self) -> None:
        """Close at once; queued messages are dropped."""
        self._socket.close()
        self._context.term()


def _frames(socket: "zmq.Socket[bytes]") -> Iterator[bytes]:
    """The frames that have come."""
    while True:
        try:
            yield socket.recv(zmq.DONTWAIT)
        except zmq.Again:
            return
