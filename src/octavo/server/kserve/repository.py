"""Triton's model repository, of a server with one model: it is loaded, and stays so for as long as the server runs."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.http_errors import HttpError
from octavo.server.json_body import BodyMemory
from octavo.server.kserve.names import served
from octavo.server.kserve.requests import read_body
from octavo.server.kserve.signature import VERSION
from octavo.server.serving import Serving


def repository_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.post("/v2/repository/index")
    async def index(request: Request) -> list[dict[str, str]]:
        """Triton's: the models there are, and whether each is ready; with `ready` only those that are."""
        only_ready = await wants_only_ready(request, serving.bodies)
        try:
            names: tuple[str, ...] = serving.model().names
            state, reason = "READY", ""
        except HttpError as error:  # it loads, or the server shuts down
            names = () if only_ready else serving.config.served_model_names
            state, reason = "UNAVAILABLE", str(error)
        return [index_entry(name, state, reason) for name in names]

    @router.post("/v2/repository/models/{name}/load")
    async def load(request: Request, name: str) -> Response:
        """Triton's: nothing to do for a model that is served; others cannot be loaded."""
        served(serving, name)
        await check_load(request, serving.bodies)
        return Response(status_code=200)

    @router.post("/v2/repository/models/{name}/unload")
    async def unload(request: Request, name: str) -> Response:
        """Triton's: refused, the server would have nothing left to serve."""
        served(serving, name)
        await check_unload(request, serving.bodies)
        raise HttpError(
            400,
            f"failed to unload '{name}': it is the only model of this server; stop the server instead",
        )

    return router


def index_entry(name: str, state: str, reason: str) -> dict[str, str]:
    """A model in the index. `state`: READY, UNAVAILABLE, LOADING or UNLOADING."""
    return {"name": name, "version": VERSION, "state": state, "reason": reason}


async def wants_only_ready(request: Request, bodies: BodyMemory) -> bool:
    """`ready` of a request for the index. Raises InvalidParameterError."""
    value = (await _fields(request, bodies)).get("ready")
    if value not in (None, True, False):
        raise InvalidParameterError(
            f"ready must be a boolean; given: {str(value)[:80]}", parameter="ready", value=value
        )
    return bool(value)


async def check_load(request: Request, bodies: BodyMemory) -> None:
    """Raise UnsupportedParameterError for a model that is to be loaded otherwise than its files and settings say."""
    for given in await _parameters(request, bodies):
        raise UnsupportedParameterError(
            f"{given[:80]} is not supported: the model is served as its files are", parameter=given
        )


async def check_unload(request: Request, bodies: BodyMemory) -> None:
    """Raise UnsupportedParameterError for what unloading cannot be told. No model depends on another."""
    for given in await _parameters(request, bodies):
        if given != "unload_dependents":
            raise UnsupportedParameterError(f"{given[:80]} is not supported", parameter=given)


async def _parameters(request: Request, bodies: BodyMemory) -> dict[str, Any]:
    parameters = (await _fields(request, bodies)).get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidParameterError(
            f"parameters must be an object; given: {str(parameters)[:80]}", parameter="parameters"
        )
    return parameters


async def _fields(request: Request, bodies: BodyMemory) -> dict[str, Any]:
    """The body as JSON; it may be empty."""
    if (
        request.headers.get("content-length", "0") == "0"
        and "transfer-encoding" not in request.headers
    ):
        return {}
    fields, _ = await read_body(request, bodies)
    return fields
