"""One of several front end processes, from its first to its last line. Run as a module; the supervisor starts it.

Reads one JSON object from standard input and writes one line to standard output when it serves, or why it cannot.
"""

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from octavo.config import EngineConfig, ServerConfig
from octavo.engine.attached import AttachedEngine
from octavo.engine.client import EXIT_GRACE_S, EngineClient
from octavo.engine.endpoint import Endpoint
from octavo.engine.process import PR_SET_PDEATHSIG
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.server.serving import Serving

MODULE = "octavo.server.frontends.process"


class FrontEndStart(msgspec.Struct, frozen=True):
    """What the process reads."""

    engine: EngineConfig
    server: ServerConfig
    engine_pid: int
    directory: str
    index: int
    """Which of the engine's clients it is."""
    listener: int
    """The descriptor of its listening socket."""
    is_replacement: bool
    """Whether it takes the place of one that has died: connections wait until it can answer them."""
    parent_pid: int
    log_level: int


class FrontEndReady(msgspec.Struct, frozen=True):
    """What it writes: no error means that it serves."""

    error_type: str | None = None
    error: str = ""


def main() -> int:
    """Serve until SIGTERM and the end of the engine; the exit code."""
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=FrontEndStart)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != start.parent_pid:
        return 1  # it has ended meanwhile
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears of it
    logging.basicConfig(
        level=logging.WARNING,
        format=f"%(asctime)s %(levelname)s front end {start.index} %(name)s: %(message)s",
    )
    logging.getLogger("octavo").setLevel(start.log_level)
    import uvloop

    return uvloop.run(_serve(start))


async def _serve(start: FrontEndStart) -> int:
    from octavo.server.app import build_app
    from octavo.server.frontends.shared_metrics import SharedMetrics
    from octavo.server.frontends.shared_responses import SharedResponses
    from octavo.server.serve import http_server
    from octavo.text.assets import load_text_assets

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    endpoint = Endpoint(Path(start.directory))
    client = EngineClient(AttachedEngine(start.engine_pid, endpoint, start.index))
    await client.connect()
    load_assets = functools.partial(
        load_text_assets, start.engine.model, start.server.chat_template
    )
    responses = SharedResponses(endpoint.directory)
    policy = start.engine.scheduler.policy
    app = build_app(client, load_assets, start.server, policy=policy, responses=responses)
    serving: Serving = app.state.serving
    shared = SharedMetrics(endpoint.directory, start.index)
    shared.restore(serving.metrics)
    serving.exposition.total = shared.total
    serving.num_open_elsewhere = shared.num_open_elsewhere
    http = http_server(app, start.server, serving.metrics.count_slow_client)
    listener = socket.socket(fileno=start.listener)
    loading = asyncio.ensure_future(_load(serving, stop))
    if start.is_replacement:
        await loading
    listening = asyncio.ensure_future(http.serve(sockets=[listener]))
    publishing = asyncio.ensure_future(shared.publish(serving))
    try:
        if await loading:
            await stop.wait()
            await _drain(serving, client)
        return 0
    finally:
        publishing.cancel()
        await client.close()  # first: it ends what is still open, and the server waits for that
        http.should_exit = True
        await listening
        await responses.close()
        shared.write(serving)


async def _load(serving: "Serving", stop: asyncio.Event) -> bool:
    """Wait until requests can be served, and say so; False: they never will be."""
    loading = asyncio.ensure_future(serving.load())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not loading.done():
        loading.cancel()
        return False
    try:
        loading.result()
    except OctavoError as error:
        _say(FrontEndReady(type(error).__name__, str(error)))
        return False
    _say(FrontEndReady())
    gc.collect()
    gc.freeze()  # what loading made lives to the end: the collector need not walk it again
    return True


def _say(line: FrontEndReady) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


async def _drain(serving: "Serving", client: EngineClient) -> None:
    """Take nothing new, and wait until the engine, which the supervisor drains, has ended or has said all."""
    serving.is_draining = True
    timeout_s = serving.config.shutdown_timeout_s + EXIT_GRACE_S
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(client.wait_dead(), timeout_s)


if __name__ == "__main__":
    sys.exit(main())
