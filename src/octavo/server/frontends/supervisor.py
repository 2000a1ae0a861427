"""`octavo serve --api-server-count N`: one engine, N front end processes, and this process, which looks after them.

Each front end has a listening socket of its own on the same port, between which the kernel divides connections. The
sockets are made here and outlive a front end that dies: what waits in them goes to the one that takes its place.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from octavo.config import EngineConfig, ServerConfig
from octavo.engine.client import EngineClient
from octavo.engine.named_errors import error_named
from octavo.engine.process import EngineProcess, start_engine_process
from octavo.errors import ConfigError, EngineDeadError
from octavo.server.frontends.process import MODULE, FrontEndReady, FrontEndStart
from octavo.server.frontends.shared_responses import serving_responses
from octavo.server.openai.responses.store import ResponseStore
from octavo.server.serve import (
    DEATH_GRACE_S,
    FLUSH_TIMEOUT_S,
    FREEZE_GRACE_S,
    bind,
    url_of,
)
from octavo.server.stats_log import log_stats
from octavo.server.stopping import done_before
from octavo.text.assets import load_text_assets

if TYPE_CHECKING:
    from octavo.engine.messages import Ready
    from octavo.text.assets import TextAssets

_LOGGER = logging.getLogger(__name__)

MOST_RESTARTS = 5
RESTART_WINDOW_S = 60.0
"""Front ends that die are replaced at most so often in this time; then the server ends."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """A started front end process."""

    index: int
    """Which of the engine's clients it is."""
    popen: "subprocess.Popen[bytes]"

    async def wait_ready(self) -> None:
        """Wait until it serves. Raises why it does not."""
        assert self.popen.stdout is not None
        loop = asyncio.get_running_loop()
        line = await loop.run_in_executor(None, self.popen.stdout.readline)
        if not line:
            code = await loop.run_in_executor(None, self.popen.wait)
            raise EngineDeadError(f"a front end process ended while it started: exit code {code}")
        ready = msgspec.json.decode(line, type=FrontEndReady)
        if ready.error_type is not None:
            raise error_named(ready.error_type, ready.error)


def serve_with_front_ends(
    engine: EngineConfig,
    server: ServerConfig,
    *,
    engine_module: str,
    on_ready: "Callable[[str, Ready, TextAssets], None] | None",
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code, as of `octavo.server.serve.serve`, which has checked the settings."""
    listeners = bind_shared(server)
    process = start_engine_process(
        engine, module=engine_module, num_clients=1 + server.api_server_count
    )
    supervisor = _Supervisor(engine, server, process, listeners)
    try:
        return asyncio.run(supervisor.run(on_ready))
    finally:
        process.kill()
        for listener in listeners:
            listener.close()


def bind_shared(server: ServerConfig) -> list[socket.socket]:
    """A listening socket for each front end, all on one port. Raises ConfigError, also if another server has the port."""
    alone = bind(server)  # sharing a port does not ask whether somebody else does
    host, port = alone.getsockname()[:2]
    family = alone.family
    alone.close()
    listeners: list[socket.socket] = []
    try:
        for _ in range(server.api_server_count):
            listeners.append(
                socket.create_server((host, port), family=family, backlog=2048, reuse_port=True)
            )
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    return listeners


class _Supervisor:
    """Starts the front ends, replaces those that die, and waits for what ends the server: a signal, or the engine."""

    def __init__(
        self,
        engine: EngineConfig,
        server: ServerConfig,
        process: EngineProcess,
        listeners: list[socket.socket],
    ) -> None:
        self._engine = engine
        self._server = server
        self._process = process
        self._listeners = listeners
        self._client = EngineClient(process)
        self._stop = asyncio.Event()
        self._front_ends: list[FrontEnd] = []
        self._deaths: deque[float] = deque(maxlen=MOST_RESTARTS)

    async def run(self, on_ready: "Callable[[str, Ready, TextAssets], None] | None") -> int:
        """The exit code, once it is known. Raises what stopped the server from loading."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        await self._client.connect()
        async with serving_responses(self._process.endpoint.directory, ResponseStore()):
            return await self._run(on_ready)

    async def _run(self, on_ready: "Callable[[str, Ready, TextAssets], None] | None") -> int:
        reporting = asyncio.ensure_future(log_stats(self._client))
        try:
            for index in range(1, 1 + len(self._listeners)):
                self._front_ends.append(self._start(index, is_replacement=False))
            if not await self._load():
                return 0
            assert self._client.ready is not None
            if on_ready is not None:
                assets = load_text_assets(self._engine.model, self._server.chat_template)
                on_ready(url_of(self._listeners[0], self._server), self._client.ready, assets)
            gc.enable()
            return await self._watch()
        finally:
            reporting.cancel()
            await self._client.close()
            await self._end_front_ends()

    def _start(self, index: int, *, is_replacement: bool) -> FrontEnd:
        listener = self._listeners[index - 1].fileno()
        start = FrontEndStart(
            engine=self._engine,
            server=self._server,
            engine_pid=self._process.pid,
            directory=str(self._process.endpoint.directory),
            index=index,
            listener=listener,
            is_replacement=is_replacement,
            parent_pid=os.getpid(),
            log_level=logging.getLogger("octavo").getEffectiveLevel(),
        )
        popen = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)),
            pass_fds=[listener],
            start_new_session=True,  # Ctrl-C in the terminal reaches this process only
        )
        assert popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), popen.stdin as pipe:
            pipe.write(msgspec.json.encode(start) + b"\n")
        return FrontEnd(index, popen)

    async def _load(self) -> bool:
        """Wait until the engine and all front ends serve; False: a signal came first."""
        loading = asyncio.gather(
            self._client.wait_ready(), *(front.wait_ready() for front in self._front_ends)
        )
        return await done_before(loading, self._stop)

    async def _watch(self) -> int:
        while not self._stop.is_set():
            if self._client.state == "dead" and not await self._outlives_death():
                return 1
            for front in list(self._front_ends):
                if front.popen.poll() is not None and not self._replace(front):
                    return 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _POLL_S)
        return await self._drain()

    async def _outlives_death(self) -> bool:
        """Wait whether the engine comes back. What has exited does not."""
        waited = 0.0
        while self._client.state == "dead" and not self._stop.is_set():
            grace = DEATH_GRACE_S if self._process.has_exited() else FREEZE_GRACE_S
            if waited >= grace:
                return False
            await asyncio.sleep(_POLL_S)
            waited += _POLL_S
        return self._client.state != "dead"

    def _replace(self, front: FrontEnd) -> bool:
        """Put another front end in the place of one that has died; False: too many have."""
        now = time.monotonic()
        _LOGGER.error(
            "front end %d has ended with %s; its requests are aborted and another is started",
            front.index,
            front.popen.returncode,
        )
        _close_output(front)
        self._client.client_gone(front.index)
        if len(self._deaths) == MOST_RESTARTS and now - self._deaths[0] < RESTART_WINDOW_S:
            _LOGGER.error("front ends have died %d times: the server ends", MOST_RESTARTS + 1)
            return False
        self._deaths.append(now)
        self._front_ends[front.index - 1] = self._start(front.index, is_replacement=True)
        return True

    async def _drain(self) -> int:
        timeout_s = self._server.shutdown_timeout_s
        _LOGGER.info(
            "shutting down: open requests have %.0f s; a second signal ends them at once", timeout_s
        )
        self._stop.clear()
        for front in self._front_ends:
            front.popen.terminate()
        draining = asyncio.ensure_future(self._client.drain(timeout_s))
        again = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not draining.done() or not draining.result():
            draining.cancel()
            return 1
        await self._end_front_ends()
        _LOGGER.info("stopped")
        return 0

    async def _end_front_ends(self) -> None:
        """Let them send their last bytes, then end them."""
        for front in self._front_ends:
            if front.popen.poll() is None:
                front.popen.terminate()
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        while any(front.popen.poll() is None for front in self._front_ends):
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.01)
        for front in self._front_ends:
            front.popen.kill()
            front.popen.wait()
            _close_output(front)


def _close_output(front: FrontEnd) -> None:
    if front.popen.stdout is not None:
        front.popen.stdout.close()
