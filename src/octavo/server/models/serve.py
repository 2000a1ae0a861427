"""`octavo serve` with several models: the life of the front end and of the engine processes behind it."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence

import uvloop

from octavo.config import ServerConfig
from octavo.engine.process import MODULE
from octavo.server.models.app import build_models_app
from octavo.server.models.plan import ModelsPlan, plan_models
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.settings import ModelSettings, check_models
from octavo.server.open_files import allow_open_files, open_standard_streams
from octavo.server.serve import bind, check_names, guarded, http_server, url_of

_LOGGER = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_models(
    models: Sequence[ModelSettings],
    server: ServerConfig,
    *,
    engine_module: str = MODULE,
    on_plan: Callable[[ModelsPlan], None] | None = None,
    on_ready: Callable[[str, ModelRegistry], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code: 0 after a drain, 1 if it was cut short.

    `on_plan` is called before anything is started, `on_ready` once what loads at the start has loaded. An engine that
    dies later is started again, and the others go on. Must run in the main thread. Raises as `octavo.server.serve.serve`.
    """
    open_standard_streams()
    allow_open_files()
    check_models(models)
    for model in models:
        check_names(model.names)
    server = guarded(server)
    listener = bind(server)
    try:
        plan = plan_models(models)
        if on_plan is not None:
            on_plan(plan)
        registry = ModelRegistry(plan.models, server, engine_module=engine_module)
        return uvloop.run(_Server(registry, server).run(listener, on_ready))
    finally:
        listener.close()


class _Server:
    """Waits for a signal while the models are served."""

    def __init__(self, registry: ModelRegistry, config: ServerConfig) -> None:
        self._registry = registry
        self._config = config
        self._stop = asyncio.Event()

    async def run(
        self, listener: socket.socket, on_ready: Callable[[str, ModelRegistry], None] | None
    ) -> int:
        """The exit code, once it is known. Raises what stopped a model from loading at the start."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        app = build_models_app(self._registry, self._config)
        http = http_server(app.app, self._config, app.exposition.count_slow_client)
        listening = asyncio.ensure_future(http.serve(sockets=[listener]))
        try:
            if not await self._until_stopped(self._registry.load_first()):
                return 0
            if on_ready is not None:
                on_ready(url_of(listener, self._config), self._registry)
            await self._until_stopped(self._registry.supervise())
            return await self._drain()
        finally:
            await (
                self._registry.close()
            )  # first: it ends what is still open, and the server waits for that
            http.should_exit = True
            await listening

    async def _until_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Do some work to its end; False: a signal came first. Raises what the work raises."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()
            return True
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return False

    async def _drain(self) -> int:
        timeout_s = self._config.shutdown_timeout_s
        _LOGGER.info(
            "shutting down: open requests have %.0f s; a second signal ends them at once", timeout_s
        )
        self._stop.clear()
        is_drained = await self._until_stopped(self._registry.drain(timeout_s))
        _LOGGER.info("stopped")
        return 0 if is_drained else 1
