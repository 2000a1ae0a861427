"""Server-sent events: frames to a client, and what happens when something fails in the middle."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from octavo.errors import OctavoError
from octavo.server.disconnect import Client, run_while_connected
from octavo.server.http_errors import error_object

DONE = b"data: [DONE]\n\n"
_LARGE_FRAME_BYTES = 16 * 1024
"""A frame like this may fill the connection's buffer alone: the next, if only an empty one, waits until it is taken.
So nothing counts as delivered to a reader who has gone to sleep."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The last bytes of a protocol's streams."""

    done: bytes
    """Of one that has said everything."""
    failed: Callable[[Exception], bytes]
    """Of one that has failed in the middle."""


def error_event(error: Exception) -> bytes:
    """OpenAI's frame that says that a stream has failed."""
    return b"data: " + msgspec.json.encode(error_object(error)) + b"\n\n"


OPENAI_ENDING = Ending(DONE, lambda error: error_event(error) + DONE)


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
        ending: Ending = OPENAI_ENDING,
    ) -> None:
        self._frames = frames
        self._ending = ending
        self.status_code = 200
        self.background = None
        self.init_headers({**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._frames):
            try:
                await run_while_connected(lambda client: self._send_all(client, send), receive)
            except ClientDisconnect:
                return  # nobody is left to be told

    async def _send_all(self, client: Client, send: Send) -> None:
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
            await send(_body(self._ending.failed(error)))
            if not isinstance(error, OctavoError):
                raise  # our own mistake: the server logs it and closes the connection
        else:
            await send(_body(self._ending.done))
        await send(_body(b"", more=False))

    def _start(self) -> Message:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
