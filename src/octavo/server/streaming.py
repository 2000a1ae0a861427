"""Server-sent events: frames to a client, and what happens when something fails in the middle."""

import contextlib
from collections.abc import AsyncGenerator, Mapping

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from octavo.errors import OctavoError
from octavo.server.disconnect import Client, run_while_connected
from octavo.server.http_errors import OPENAI_ERRORS, ErrorShape, error_shape_of

DONE = b"data: [DONE]\n\n"
_LARGE_FRAME_BYTES = 16 * 1024
"""A frame like this may fill the connection's buffer alone: the next, if only an empty one, waits until it is taken.
So nothing counts as delivered to a reader who has gone to sleep."""


class EventStream(Response):
    """A response whose frames are made while it is sent.

    Nothing is sent before the first frame exists, so a request that fails before it gets a status of its own. A later
    failure becomes an `error` event and the stream ends properly. A client that goes away cancels the frames at once.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        headers: Mapping[str, str],
        *,
        last: bytes = DONE,
    ) -> None:
        """`last` ends the stream, whether it went well or not."""
        self._frames = frames
        self._last = last
        self.status_code = 200
        self.background = None
        self.init_headers({**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shape = error_shape_of(scope)
        async with contextlib.aclosing(self._frames):
            try:
                await run_while_connected(
                    lambda client: self._send_all(client, send, shape), receive
                )
            except ClientDisconnect:
                return  # nobody is left to be told

    async def _send_all(self, client: Client, send: Send, shape: ErrorShape) -> None:
        started = False
        try:
            async for frame in self._frames:
                if not started:
                    started = True
                    await send(self._start())
                await send(_body(frame))
                if len(frame) > _LARGE_FRAME_BYTES:
                    await send(_body(b""))
                if client.has_gone:  # sending says nothing about it
                    raise ClientDisconnect
        except ClientDisconnect:
            raise
        except Exception as error:
            if not started:
                raise
            await send(_body(error_event(error, shape) + self._last))
            if not isinstance(error, OctavoError):
                raise  # our own mistake: the server logs it and closes the connection
        else:
            if self._last:
                await send(_body(self._last))
        await send(_body(b"", more=False))

    def _start(self) -> Message:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }


def error_event(error: Exception, shape: ErrorShape = OPENAI_ERRORS) -> bytes:
    """The frame that says that a stream has failed."""
    return b"data: " + msgspec.json.encode(shape.body(error)) + b"\n\n"


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
