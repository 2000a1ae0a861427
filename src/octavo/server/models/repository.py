"""What KServe's protocol and Triton's extensions ask about several models: ready, statistics, and the model repository."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from octavo.config import ServerConfig
from octavo.errors import OctavoError
from octavo.server.http_errors import HttpError
from octavo.server.json_body import BodyMemory
from octavo.server.kserve.metadata import routes_about_server
from octavo.server.kserve.names import check_version
from octavo.server.kserve.repository import (
    IndexRequest,
    RepositoryRequest,
    check_load,
    check_unload,
    index_entry,
    repository_body,
)
from octavo.server.kserve.statistics import ALL_STATISTICS, statistics
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.routes import cannot_load
from octavo.server.models.slot import ModelSlot, SlotState
from octavo.server.openai.fields import ignored_header

_STATES = {
    SlotState.READY: "READY",
    SlotState.SLEEPING: "READY",
    SlotState.LOADING: "LOADING",
    SlotState.UNLOADING: "UNLOADING",
}
"""As Triton names them; others are UNAVAILABLE."""
_REASONS = {
    SlotState.SLEEPING: "the next request loads it",
    SlotState.UNLOADED: "unloaded",
}


def kserve_routes(registry: ModelRegistry) -> APIRouter:
    """/v2 and /v2/health, whether a model is ready, and the statistics of all."""
    router = routes_about_server(registry.check_serving)

    @router.head("/v2/models/{name}/ready", include_in_schema=False)
    @router.head("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    @router.get("/v2/models/{name}/ready")
    @router.get("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    async def model_ready(name: str, version: str | None = None) -> Response:
        """KServe's: 200 when requests for the model are answered, also if it sleeps until one comes. Loads nothing."""
        slot = registry.slot(name)
        check_version(name, version)
        if not slot.is_ready:
            raise HttpError(503, f"The model `{slot.name}` is not ready: {slot.state.value}")
        return Response(status_code=200)

    @router.get(ALL_STATISTICS)
    async def all_statistics() -> dict[str, Any]:
        """Triton's: statistics of the models that are loaded."""
        loaded = ((name, slot.loaded) for name, slot in registry.slots.items())
        return {"model_stats": [statistics(model.serving, name) for name, model in loaded if model]}

    return router


def repository_routes(
    registry: ModelRegistry, bodies: BodyMemory, config: ServerConfig
) -> APIRouter:
    """Triton's model repository."""
    router = APIRouter()
    strict = config.strict_requests

    @router.post("/v2/repository/index")
    async def index(request: Request) -> Response:
        """Triton's: every model under each of its names, and its state; with `ready` only those that are."""
        body, ignored = await repository_body(request, bodies, IndexRequest, strict=strict)
        slots = ((name, slot) for name, slot in registry.names if slot.is_ready or not body.ready)
        models = [_entry(name, slot) for name, slot in slots]
        return JSONResponse(models, headers=ignored_header(ignored))

    @router.post("/v2/repository/models/{name:path}/load")
    async def load(request: Request, name: str) -> Response:
        """Triton's: load a model, and answer when it is ready. A model that is loaded stays as it is."""
        slot = registry.slot(name)
        body, ignored = await repository_body(request, bodies, RepositoryRequest, strict=strict)
        check_load(body)
        try:
            await slot.load()
        except OctavoError as error:
            raise cannot_load(slot, error) from error
        return Response(status_code=200, headers=ignored_header(ignored))

    @router.post("/v2/repository/models/{name:path}/unload")
    async def unload(request: Request, name: str) -> Response:
        """Triton's: let the model's open requests finish, unload it, and answer when its memory is free."""
        slot = registry.slot(name)
        body, ignored = await repository_body(request, bodies, RepositoryRequest, strict=strict)
        check_unload(body)
        await slot.unload(config.shutdown_timeout_s)
        return Response(status_code=200, headers=ignored_header(ignored))

    return router


def _entry(name: str, slot: ModelSlot) -> dict[str, str]:
    reason = _REASONS.get(slot.state, "") if slot.error is None else str(slot.error)
    return index_entry(name, _STATES.get(slot.state, "UNAVAILABLE"), reason)
