"""One model of a server of several: its engine process while it is loaded, and those who wait for it."""

import asyncio
import contextlib
import ctypes
import functools
import gc
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from fastapi import FastAPI

from octavo.config import ServerConfig
from octavo.engine.client import EngineClient
from octavo.engine.process import EngineProcess, start_engine_process
from octavo.errors import EngineDeadError, OctavoError, QueueFullError
from octavo.server.app import build_app
from octavo.server.http_errors import HttpError
from octavo.server.models.settings import LoadWhen, ModelSettings
from octavo.server.openai.responses.store import Responses
from octavo.server.serving import Serving
from octavo.server.stats_log import log_stats
from octavo.text.assets import load_text_assets

_LOGGER = logging.getLogger(__name__)

POLL_S = 0.1
FREEZE_GRACE_S = 60.0
"""An engine that only stopped answering has this long to come back."""
MOST_RESTARTS = 3
RESTART_WINDOW_S = 600.0
"""An engine that died is started again at most so often in this time; then the model has failed."""
FLUSH_TIMEOUT_S = 5.0
"""How long the last bytes of drained responses may take."""


class SlotState(str, Enum):
    """How a model is."""

    UNLOADED = "unloaded"
    """Until it is told to load."""
    SLEEPING = "sleeping"
    """Until the next request for it."""
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"
    """It did not load, or its engine died too often. It may be told to load again."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """How an unloading went."""

    was_loaded: bool
    num_finished: int
    """Open requests that came to their end."""
    num_cancelled: int
    """Choices that were aborted."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What there is of a model while it is loaded."""

    process: EngineProcess
    client: EngineClient
    app: FastAPI
    serving: Serving
    reporting: asyncio.Task[None]

    async def close(self) -> None:
        """End the engine process, whatever it does, and give back everything."""
        self.reporting.cancel()
        await self.client.close()
        self.serving.close()


class ModelSlot:
    """A model and its life. One event loop owns it; loading and unloading take turns."""

    def __init__(
        self,
        settings: ModelSettings,
        server: ServerConfig,
        accepted_names: tuple[str, ...],
        responses: Responses,
        *,
        engine_module: str,
    ) -> None:
        """`accepted_names`: of all models that hand requests to this one, too; its own first. All share `responses`."""
        self.settings = settings
        self.loaded: Loaded | None = None
        self.error: OctavoError | None = None
        """Why the state is FAILED."""
        self.num_open = 0
        """Requests that it is answering."""
        self.num_waiting = 0
        """Requests that wait for it to load."""
        self.num_loads = 0
        self.num_deaths = 0
        self.is_closing = False
        """The server is shutting down: nothing is loaded any more."""
        self._server = replace(
            server,
            served_model_names=accepted_names,
            chat_template=settings.chat_template or server.chat_template,
            allowed_origins=(),  # the server as a whole answers browsers
        )
        self._responses = responses
        self._engine_module = engine_module
        self._state = (
            SlotState.UNLOADED if settings.load is LoadWhen.COMMAND else SlotState.SLEEPING
        )
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self._has_died = False
        """Since then it has not been loaded again."""
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS)
        self._last_used = time.monotonic()

    @property
    def name(self) -> str:
        """The name in answers."""
        return self.settings.name

    @property
    def state(self) -> SlotState:
        """How it is now."""
        return self._state

    def _become(self, state: SlotState, error: OctavoError | None = None) -> None:
        self._state, self.error = state, error
        _LOGGER.info("model %s: %s%s", self.name, state.value, f": {error}" if error else "")
        self._last_used = time.monotonic()
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether a request is answered: at once, or when the model has been loaded for it."""
        return not self.is_closing and self._state in (SlotState.READY, SlotState.SLEEPING)

    # requests

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Count a request while it is open: a model that has one is not idle."""
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1
            self._last_used = time.monotonic()

    async def app(self, *, has_fallback: bool) -> FastAPI:
        """The application that answers for the model; waits while it loads, and loads it if it sleeps.

        Raises HttpError 503 if it is not to be loaded or cannot be, or has died and another model may answer, and
        QueueFullError if too many wait already.
        """
        if has_fallback and self._has_died:
            raise HttpError(503, f"The engine of the model `{self.name}` starts again")
        if self._state is SlotState.READY and self.loaded is not None:
            return self.loaded.app
        limit = self.settings.engine.scheduler.max_num_queued_reqs
        if self.num_waiting >= limit:
            raise QueueFullError(
                f"{self.num_waiting} requests wait for the model {self.name} to load; the limit is {limit}"
            )
        self.num_waiting += 1
        try:
            while self._state is not SlotState.READY:
                self._check_loadable()
                if self._state is SlotState.SLEEPING:
                    self._begin_load()
                await self._changed.wait()
        finally:
            self.num_waiting -= 1
        assert self.loaded is not None
        return self.loaded.app

    def _check_loadable(self) -> None:
        if self.is_closing:
            raise HttpError(
                503,
                "The server is shutting down",
                headers={"retry-after": "5", "connection": "close"},
            )
        if self._state is SlotState.UNLOADED:
            raise HttpError(
                503,
                f"The model `{self.name}` is not loaded: POST /v1/models/load loads it",
                param="model",
            )
        if self._state is SlotState.FAILED:
            raise HttpError(503, f"The model `{self.name}` has failed: {self.error}", param="model")

    def _begin_load(self) -> None:
        """Load in the background; whoever waits sees the state."""
        if self._loading is None or self._loading.done():
            self._loading = asyncio.ensure_future(self._load_quietly())

    async def _load_quietly(self) -> None:
        with contextlib.suppress(OctavoError):  # it is the slot's `error`, and has been logged
            await self.load()

    # loading and unloading

    async def load(self) -> None:
        """Load the model, unless it is. Raises what stopped it, which is also in `error`."""
        async with self._turn:
            if self._state is SlotState.READY:
                return
            self._become(SlotState.LOADING)
            try:
                self.loaded = await self._start()
            except asyncio.CancelledError:
                self._become(SlotState.SLEEPING)  # the server ends
                raise
            except OctavoError as error:
                self._become(SlotState.FAILED, error)
                raise
            except Exception as error:  # a mistake of ours: whoever waits must hear of it
                _LOGGER.exception("model %s cannot be loaded", self.name)
                reason = EngineDeadError(f"{type(error).__name__}: {error}")
                self._become(SlotState.FAILED, reason)
                raise reason from error
            self.num_loads += 1
            self._has_died = False
            self._become(SlotState.READY)

    async def _start(self) -> Loaded:
        engine = self.settings.engine
        process = start_engine_process(
            engine, module=self._engine_module, label=f"engine of {self.name}"
        )
        client = EngineClient(process, seed=engine.seed)
        try:
            await client.connect()
            load_assets = functools.partial(
                load_text_assets, engine.model, self._server.chat_template
            )
            app = build_app(
                client,
                load_assets,
                self._server,
                policy=engine.scheduler.policy,
                responses=self._responses,
            )
            await app.state.serving.load()
        except BaseException:
            await client.close()
            raise
        reporting = asyncio.ensure_future(log_stats(client, self.name))
        return Loaded(process, client, app, app.state.serving, reporting)

    async def unload(
        self, timeout_s: float, then: SlotState = SlotState.UNLOADED, *, only_idle: bool = False
    ) -> Unloaded:
        """Let open requests finish for `timeout_s`, abort the others, end the engine process, and give back its memory."""
        async with self._turn:
            loaded = self.loaded
            if loaded is None:
                if self._state is not then:
                    self._become(then)
                return Unloaded(False, 0, 0)
            if only_idle and self.num_open:
                return Unloaded(False, 0, 0)
            num_open = self.num_open
            aborted = loaded.serving.metrics.num_finished["abort"]
            loaded.serving.is_draining = True
            self._become(SlotState.UNLOADING)
            await loaded.client.drain(timeout_s)
            await self._flushed()
            num_cancelled = loaded.serving.metrics.num_finished["abort"] - aborted
            await self._drop(loaded)
            self._become(then)
            return Unloaded(True, max(0, num_open - num_cancelled), num_cancelled)

    async def _flushed(self) -> None:
        """Wait until the last bytes of the open responses are sent."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        while self.num_open and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    async def _drop(self, loaded: Loaded) -> None:
        """End the engine, and give what this process held for the model back to the system."""
        self.loaded = None
        await loaded.close()
        del loaded
        gc.collect()  # an application and its routes are full of cycles
        _give_back_memory()

    # supervision

    async def supervise(self) -> None:
        """Unload the model when it is idle, and start its engine again when it has died. Until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            loaded = self.loaded
            if self._state is not SlotState.READY or loaded is None:
                continue
            if loaded.client.state == "dead" and not await self._comes_back(loaded):
                await self._bury(loaded)
            elif self._is_idle():
                await self.unload(0.0, SlotState.SLEEPING, only_idle=True)

    def _is_idle(self) -> bool:
        idle_s = self.settings.idle_unload_s
        return (
            idle_s is not None
            and self.num_open == 0
            and time.monotonic() - self._last_used >= idle_s
        )

    async def _comes_back(self, loaded: Loaded) -> bool:
        """Whether an engine that does not answer does so again. What has exited does not."""
        deadline = time.monotonic() + FREEZE_GRACE_S
        while loaded.client.state == "dead" and not loaded.process.has_exited():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return loaded.client.state != "dead"

    async def _bury(self, loaded: Loaded) -> None:
        """Clear away an engine that has died, and start another unless that has been done too often."""
        async with self._turn:
            reason = loaded.client.error or EngineDeadError("the engine has ended")
            self.num_deaths += 1
            self._has_died = True
            self._become(SlotState.UNLOADING)  # who asks now waits for the next engine
            _LOGGER.error("the engine of model %s has died: %s", self.name, reason)
            await self._flushed()
            await self._drop(loaded)
            now = time.monotonic()
            is_hopeless = (
                len(self._restarts) == MOST_RESTARTS and now - self._restarts[0] < RESTART_WINDOW_S
            )
            if is_hopeless:
                self._become(SlotState.FAILED, EngineDeadError(f"{reason}, {MOST_RESTARTS} times"))
                return
            self._restarts.append(now)
            self._become(SlotState.SLEEPING)
        self._begin_load()

    async def close(self) -> None:
        """End everything at once."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self.loaded is not None:
            await self._drop(self.loaded)


def _give_back_memory() -> None:
    """Free pages of the C heap: they stay with the process otherwise."""
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
