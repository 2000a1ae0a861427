"""One streaming client of /v1/completions: sends token ids and notes when text comes back.

On bare connections, because the client competes for the cores with the server it measures: no layer between
the socket and the clock.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from octavo.errors import ConfigError
from octavo.evaluation.sse_response import HTTP_OK, SseResponse
from octavo.evaluation.throughput import WorkItem

REQUEST_TIMEOUT_S = 600.0
"""A request that has not ended after this long has failed."""
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go."""

    host: str
    port: int
    is_encrypted: bool
    path: str
    """What stands before /v1 in the URL."""

    @staticmethod
    def parse(url: str) -> "Target":
        """Read http://host[:port][/prefix]; an ending /v1 is dropped. Raises ConfigError."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"--url: {error}; given: {url}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url must look like http://127.0.0.1:8000; given: {url}")
        is_encrypted = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return Target(parts.hostname, port or (443 if is_encrypted else 80), is_encrypted, path)


@dataclass(slots=True)
class Answer:
    """What one client saw. Times are those of `time.perf_counter`, in seconds."""

    item: WorkItem
    start: float
    """When the request was due: waiting for the client to send it counts, too."""
    text_times: list[float] = field(default_factory=list)
    """When each piece of text came."""
    end: float | None = None
    """When the last piece came; None: it did not."""
    num_output_tokens: int = 0
    """As the server counts them; the pieces of text where it does not say."""
    error: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    """What matters of a chunk."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: dict[str, Any] | str | None = None


_DECODER = msgspec.json.Decoder(_Event)


def request_bytes(target: Target, model: str, item: WorkItem) -> bytes:
    """The whole HTTP request: greedy, past end tokens, streamed, with usage at the end."""
    body = json.dumps(
        {
            "model": model,
            "prompt": list(item.prompt_token_ids),
            "max_tokens": item.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        f"POST {target.path}/v1/completions HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def complete(
    target: Target, request: bytes, answer: Answer, count: Callable[[], None]
) -> None:
    """Send the request on a connection of its own and fill the answer; a failure becomes part of it.

    `count` is called for each piece of text.
    """
    try:
        await asyncio.wait_for(_exchange(target, request, answer, count), REQUEST_TIMEOUT_S)
    except asyncio.TimeoutError:
        answer.error = f"no end within {REQUEST_TIMEOUT_S:.0f} s"
    except OSError as error:
        answer.error = f"cannot connect: {error}"


async def _exchange(
    target: Target, request: bytes, answer: Answer, count: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    transport, _ = await loop.create_connection(
        lambda: _Client(request, answer, ended, count),
        target.host,
        target.port,
        ssl=ssl.create_default_context() if target.is_encrypted else None,
    )
    try:
        await ended
    finally:
        transport.close()


class _Client(asyncio.Protocol):
    def __init__(
        self,
        request: bytes,
        answer: Answer,
        ended: "asyncio.Future[None]",
        count: Callable[[], None],
    ) -> None:
        self._request = request
        self._answer = answer
        self._ended = ended
        self._count = count
        self._response = SseResponse()
        self._is_done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)  # uvloop's are no subclass of it

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        try:
            for event in self._response.feed(data):
                self._take(event, now)
        except (ValueError, msgspec.DecodeError) as error:
            self._fail(f"an answer that is not understood: {error}")
        if self._response.is_complete:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._response.end()
        if exc is not None:
            self._fail(f"the connection broke: {exc}")
        self._finish()

    def _take(self, data: bytes, now: float) -> None:
        if data == DONE:
            self._is_done = True
            return
        event = _DECODER.decode(data)
        if event.error is not None:
            self._fail(_message(event.error))
        if event.usage is not None:
            self._answer.num_output_tokens = event.usage.completion_tokens
        if event.choices:
            self._answer.end = now
            if event.choices[0].text or not self._answer.text_times:
                self._answer.text_times.append(now)
                self._count()

    def _fail(self, error: str) -> None:
        self._answer.error = self._answer.error or error

    def _finish(self) -> None:
        """Whatever has come is the answer."""
        if self._ended.done():
            return
        response = self._response
        if response.status not in (None, HTTP_OK):
            self._fail(f"status {response.status}: {response.error_text()}")
        elif not (self._is_done and response.is_complete):
            self._fail("the stream was cut off")
        self._answer.num_output_tokens = self._answer.num_output_tokens or len(
            self._answer.text_times
        )
        self._ended.set_result(None)


def _message(error: dict[str, Any] | str) -> str:
    """What an error event says."""
    return str(error.get("message", error)) if isinstance(error, dict) else error
