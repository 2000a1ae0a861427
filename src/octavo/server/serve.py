"""`octavo serve`: the life of the two processes, from the first connection to the exit code.

Nothing of HTTP is imported before the engine process runs: both load at once.
"""

import asyncio
import contextlib
import errno
import functools
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from octavo.checkpoints.locate import locate
from octavo.config import EngineConfig, ServerConfig
from octavo.engine.process import MODULE, EngineProcess, start_engine_process
from octavo.errors import ConfigError
from octavo.server.api_key_file import all_api_keys
from octavo.server.open_files import allow_open_files, open_standard_streams
from octavo.server.stopping import done_before
from octavo.server.tls import tls_context

if TYPE_CHECKING:
    import uvicorn

    from octavo.engine.client import EngineClient
    from octavo.engine.messages import Ready
    from octavo.server.serving import ServedModel, Serving
    from octavo.text.assets import TextAssets

_LOGGER = logging.getLogger(__name__)

DEATH_GRACE_S = 2.0
"""After the engine has ended, errors and 503s are still delivered for this long; then the server exits with 1."""
FREEZE_GRACE_S = 60.0
"""An engine that only stopped answering has this long to come back."""
FLUSH_TIMEOUT_S = 5.0
"""How long the last bytes of drained responses may take."""
SEND_BUFFER_BYTES = 128 * 1024
"""Kernel buffer of a connection (the kernel doubles it). With the 64 KiB of the event loop it bounds what a client
that does not read can hold; left to itself the kernel would grow it to megabytes."""
_POLL_S = 0.1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    engine: EngineConfig,
    server: ServerConfig,
    *,
    engine_module: str = MODULE,
    on_ready: "Callable[[str, Ready, TextAssets], None] | None" = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code: 0 after a drain, 1 if the engine failed.

    `on_ready` is called once with the server's URL, what the engine said of the model, and its text side. Must run in
    the main thread.
    Raises ConfigError for settings that do not fit together, the machine or the model, and for an address that cannot be
    used; CheckpointError or DownloadError if there is no such model; EngineDeadError if the engine ended while loading.
    """
    gc.disable()  # until all is loaded: nothing of it is garbage, and looking for some takes 40 ms
    open_standard_streams()
    allow_open_files()
    engine, server = _located(engine, guarded(server))
    for number in _SIGNALS:
        signal.signal(number, _exit_before_loop)
    if server.api_server_count > 1:
        from octavo.server.frontends.supervisor import serve_with_front_ends

        _check_seed(engine, server)
        return serve_with_front_ends(engine, server, engine_module=engine_module, on_ready=on_ready)
    listener = bind(server)
    process = start_engine_process(engine, module=engine_module)
    try:
        import uvloop  # here, so that it loads beside the engine

        url = url_of(listener, server)
        return uvloop.run(_serve(engine, server, process, listener, url, on_ready))
    finally:
        process.kill()
        listener.close()


def guarded(server: ServerConfig) -> ServerConfig:
    """The settings with all API keys read. Raises ConfigError, for a certificate that cannot be used too."""
    tls_context(server)
    return replace(server, api_keys=all_api_keys(server), api_key_file=None)


def _located(engine: EngineConfig, server: ServerConfig) -> tuple[EngineConfig, ServerConfig]:
    """The settings with the model's path, and with a name for it."""
    names = server.served_model_names or (engine.model.model,)
    check_names(names)
    path = locate(engine.model.model, revision=engine.model.revision)
    engine = replace(engine, model=replace(engine.model, model=str(path)))
    return engine, replace(server, served_model_names=names)


def _check_seed(engine: EngineConfig, server: ServerConfig) -> None:
    if engine.seed is not None:
        raise ConfigError(
            "--seed draws from the order of requests, which several front ends do not have: "
            f"given: --seed {engine.seed} and --api-server-count {server.api_server_count}"
        )


def check_names(names: tuple[str, ...]) -> None:
    """Raise ConfigError for bytes of the command line that are not text: no answer could hold them."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the model's name must be valid UTF-8; given: {name!r}") from error


def bind(server: ServerConfig) -> socket.socket:
    """A listening socket. Raises ConfigError."""
    try:
        family = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((server.host, server.port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {server.port} is in use; choose another with --port"
            ) from error
        raise ConfigError(f"cannot listen on {server.host}:{server.port}: {error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # is inherited
    return listener


def url_of(listener: socket.socket, server: ServerConfig) -> str:
    """Where clients find a listening socket."""
    host, port = listener.getsockname()[:2]
    scheme = "http" if server.ssl_certfile is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _exit_before_loop(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


async def _serve(
    engine: EngineConfig,
    server: ServerConfig,
    process: EngineProcess,
    listener: socket.socket,
    url: str,
    on_ready: "Callable[[str, Ready, TextAssets], None] | None",
) -> int:
    from octavo.engine.client import EngineClient
    from octavo.server.app import build_app
    from octavo.server.stats_log import log_stats
    from octavo.text.assets import load_text_assets

    client = EngineClient(process, seed=engine.seed)
    await client.connect()
    load_assets = functools.partial(load_text_assets, engine.model, server.chat_template)
    app = build_app(client, load_assets, server, policy=engine.scheduler.policy)
    serving: Serving = app.state.serving
    http = http_server(app, server, serving.metrics.count_slow_client)
    listening = asyncio.ensure_future(http.serve(sockets=[listener]))
    reporting = asyncio.ensure_future(log_stats(client))
    supervisor = _Supervisor(client, serving, process)
    try:
        return await supervisor.run(
            lambda model: on_ready(url, model.ready, model.assets) if on_ready else None
        )
    finally:
        reporting.cancel()
        await client.close()  # first: it ends what is still open, and the server waits for that
        http.should_exit = True
        await listening


class _Supervisor:
    """Waits for what ends a server: a signal, or the engine."""

    def __init__(self, client: "EngineClient", serving: "Serving", process: EngineProcess) -> None:
        self._client = client
        self._serving = serving
        self._process = process
        self._stop = asyncio.Event()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)

    async def run(self, on_ready: "Callable[[ServedModel], None]") -> int:
        """The exit code, once it is known. Raises what stopped the model from loading."""
        if not await self._load():
            return 0
        on_ready(self._serving.model())
        gc.collect()
        gc.freeze()  # what loading made lives to the end: the collector need not walk it again
        gc.enable()
        while not self._stop.is_set():
            if self._client.state == "dead" and not await self._outlives_death():
                return 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _POLL_S)
        return await self._drain()

    async def _load(self) -> bool:
        """Wait until the model is loaded; False: a signal came first."""
        return await done_before(self._serving.load(), self._stop)

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

    async def _drain(self) -> int:
        self._serving.is_draining = True
        timeout_s = self._serving.config.shutdown_timeout_s
        _LOGGER.info(
            "shutting down: %d open requests have %.0f s; a second signal ends them at once",
            self._serving.num_open,
            timeout_s,
        )
        self._stop.clear()
        draining = asyncio.ensure_future(self._client.drain(timeout_s))
        again = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not draining.done():
            draining.cancel()
            return 1
        if not draining.result():
            return 1
        _LOGGER.info("stopped")
        return 0


def http_server(
    app: object, server: ServerConfig, on_slow_client: Callable[[], None]
) -> "uvicorn.Server":
    """What answers connections, until its `should_exit`."""
    import uvicorn

    from octavo.server.connection import ClientLimit, connection_with

    tls = tls_context(server)

    class Server(uvicorn.Server):
        """Leaves signals to `_Supervisor`: uvicorn would stop listening before the engine has drained."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    client_limit = ClientLimit(server.slow_client_timeout_s, on_slow_client)
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=connection_with(client_limit),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(FLUSH_TIMEOUT_S),
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    return Server(config)
