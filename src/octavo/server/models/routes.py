"""The routes of a server of several models that are about the server or about its models, not about one request."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import ConfigError, EngineDeadError, InvalidParameterError, OctavoError
from octavo.server.health import octavo_version
from octavo.server.http_errors import HttpError
from octavo.server.json_body import BodyMemory, read_json_object
from octavo.server.models.metrics import ModelsExposition
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.slot import ModelSlot
from octavo.server.openai.exchange import now
from octavo.server.openai.fields import NO_OTHERS, RequestBody, parse_request
from octavo.server.openai.models import model_card

MAX_TIMEOUT_S = 3600.0


class LoadRequest(RequestBody):
    """POST /v1/models/load."""

    model: str


class UnloadRequest(RequestBody):
    """POST /v1/models/unload."""

    model: str
    timeout_s: float | None = None
    """How long open requests may finish; None: as long as at the server's end (`--shutdown-timeout`)."""
    cancel: bool | None = None
    """Do not wait for open requests."""


def server_routes(registry: ModelRegistry, exposition: ModelsExposition) -> APIRouter:
    """/, /health, /ping, /version, /load and /metrics, for all models together."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.head("/ping", include_in_schema=False)
    @router.get("/health")
    @router.get("/ping")
    @router.post("/ping")
    async def health() -> Response:
        """200 when what loads at the start has loaded, and some model answers or would load; else 503 with the states."""
        registry.check_serving()
        return Response(status_code=200)

    @router.get("/")
    async def root() -> dict[str, str]:
        """What this is, and where to go on."""
        return {"name": "Octavo", "version": octavo_version(), "api": "/v1", "docs": "/docs"}

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The version of the server."""
        return {"version": octavo_version()}

    @router.get("/load")
    async def load() -> dict[str, Any]:
        """Requests that are open or wait for their model."""
        slots = registry.slots.values()
        return {"server_load": sum(slot.num_open + slot.num_waiting for slot in slots)}

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus metrics of all models; the label model_name tells them apart."""
        body, content_type = exposition.write(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return router


def model_routes(
    registry: ModelRegistry, bodies: BodyMemory, shutdown_timeout_s: float
) -> APIRouter:
    """/v1/models: what there is, and loading and unloading."""
    router = APIRouter()
    created = now()

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        """Every model under each of its names, loaded or not."""
        cards = [_card(name, slot, created) for name, slot in registry.names]
        return {"object": "list", "data": cards}

    @router.post("/v1/models/load")
    async def load(request: Request) -> dict[str, Any]:
        """Load a model, and answer when it is ready. A model that is loaded stays as it is."""
        fields = await read_json_object(request, bodies)
        body, _ = parse_request(LoadRequest, fields, NO_OTHERS, strict=True)
        slot = registry.slot(body.model)
        try:
            await slot.load()
        except OctavoError as error:
            raise cannot_load(slot, error) from error
        return _card(slot.name, slot, created)

    @router.post("/v1/models/unload")
    async def unload(request: Request) -> dict[str, Any]:
        """Unload a model and answer when its memory is free. Open requests finish, or are aborted after `timeout_s`."""
        fields = await read_json_object(request, bodies)
        body, _ = parse_request(UnloadRequest, fields, NO_OTHERS, strict=True)
        timeout_s = _timeout(body, shutdown_timeout_s)
        done = await registry.unload(body.model, timeout_s)
        slot = registry.slot(body.model)
        return {
            **_card(slot.name, slot, created),
            "was_loaded": done.was_loaded,
            "num_finished": done.num_finished,
            "num_cancelled": done.num_cancelled,
        }

    @router.get("/v1/models/{name:path}")
    async def retrieve_model(name: str) -> dict[str, Any]:
        """One model under one of its names."""
        return _card(name, registry.slot(name), created)

    return router


def _timeout(body: UnloadRequest, default_s: float) -> float:
    if body.cancel and body.timeout_s:
        raise InvalidParameterError(
            f"cancel and timeout_s exclude each other; given: {body.timeout_s}",
            parameter="timeout_s",
            value=body.timeout_s,
        )
    timeout_s = 0.0 if body.cancel else default_s if body.timeout_s is None else body.timeout_s
    if not 0 <= timeout_s <= MAX_TIMEOUT_S:
        raise InvalidParameterError(
            f"timeout_s must be from 0 to {MAX_TIMEOUT_S:g}; given: {timeout_s}",
            parameter="timeout_s",
            value=timeout_s,
        )
    return timeout_s


def cannot_load(slot: ModelSlot, error: OctavoError) -> HttpError:
    """It is the server's settings or machine that do not fit the model, not the request."""
    status = 503 if isinstance(error, (ConfigError, EngineDeadError)) else 500
    return HttpError(status, f"The model `{slot.name}` cannot be loaded: {error}", param="model")


def _card(name: str, slot: ModelSlot, created: int) -> dict[str, Any]:
    ready = None if slot.loaded is None else slot.loaded.client.ready
    return {
        **model_card(name, slot.name, None if ready is None else ready.max_model_len, created),
        "state": slot.state.value,
        "error": None if slot.error is None else str(slot.error),
    }
