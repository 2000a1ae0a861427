"""`octavo run-batch`: the requests of a file, many at once, against an engine of its own."""

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import BinaryIO

from starlette.types import ASGIApp

from octavo.config import EngineConfig, ServerConfig
from octavo.engine.client import EngineClient
from octavo.engine.process import EngineProcess
from octavo.errors import InvalidParameterError
from octavo.server.app import build_app
from octavo.server.batch.ask import ask
from octavo.server.batch.files import InputLine
from octavo.server.batch.lines import answer_line, custom_id_of, error_line, read_request
from octavo.text.assets import load_text_assets


@dataclass(slots=True)
class BatchCounts:
    """What came of the lines so far."""

    num_answered: int = 0
    num_refused: int = 0
    """By the server, with a status of their own."""
    num_unreadable: int = 0
    """Not asked, because the line is no request."""

    @property
    def num_lines(self) -> int:
        """All of them."""
        return self.num_answered + self.num_refused + self.num_unreadable


@asynccontextmanager
async def batch_app(
    engine: EngineConfig, server: ServerConfig, process: EngineProcess
) -> AsyncIterator[ASGIApp]:
    """The application over an engine process, loaded. Raises what stopped either from loading."""
    client = EngineClient(process, seed=engine.seed)
    await client.connect()
    assets = functools.partial(load_text_assets, engine.model, server.chat_template)
    app = build_app(client, assets, server, policy=engine.scheduler.policy)
    try:
        await app.state.serving.load()
        yield app
    finally:
        await client.close()
        app.state.serving.close()


async def run_batch(
    app: ASGIApp,
    lines: Iterable[InputLine],
    output: BinaryIO,
    *,
    max_concurrent: int,
    on_line: Callable[[BatchCounts], None],
) -> BatchCounts:
    """Ask every line and write an answer for each, in their order, as soon as those before are there.

    `max_concurrent` requests are open at most; `on_line` is told after each line that is written.
    """
    counts = BatchCounts()
    seen: set[str] = set()
    source = iter(lines)
    window: list[asyncio.Task[bytes]] = []
    try:
        while True:
            for line in itertools.islice(source, max_concurrent - len(window)):
                window.append(asyncio.create_task(_answer(app, line, seen, counts)))
            if not window:
                return counts
            output.write(await window[0])
            output.flush()
            del window[0]
            on_line(counts)
    finally:
        for task in window:
            task.cancel()
        await asyncio.gather(*window, return_exceptions=True)


async def _answer(app: ASGIApp, line: InputLine, seen: set[str], counts: BatchCounts) -> bytes:
    try:
        request = read_request(line.data, line.number)
        if request.custom_id in seen:
            raise InvalidParameterError(
                f"line {line.number}: custom_id {request.custom_id[:80]!r} has been used before",
                parameter="custom_id",
                value=request.custom_id,
            )
    except InvalidParameterError as error:
        counts.num_unreadable += 1
        return error_line(custom_id_of(line.data), error)
    seen.add(request.custom_id)
    reply = await ask(app, request.url, request.body)
    if reply.status == HTTPStatus.OK:
        counts.num_answered += 1
    else:
        counts.num_refused += 1
    return answer_line(request.custom_id, reply.status, reply.request_id, reply.body)
