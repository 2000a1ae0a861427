"""Triton's model repository, of a server with one model: it is loaded, and stays so for as long as the server runs."""

from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from octavo.errors import UnsupportedParameterError
from octavo.server.http_errors import HttpError
from octavo.server.json_body import BodyMemory
from octavo.server.kserve.names import served
from octavo.server.kserve.requests import read_body
from octavo.server.kserve.signature import VERSION
from octavo.server.openai.fields import NO_OTHERS, RequestBody, ignored_header, parse_request
from octavo.server.serving import Serving


class IndexRequest(RequestBody):
    """POST /v2/repository/index."""

    ready: bool | None = None
    """List only models that are ready."""


class RepositoryRequest(RequestBody):
    """POST /v2/repository/models/{name}/load and unload."""

    parameters: dict[str, Any] | None = None
    """To unload: `unload_dependents`, which is nothing, since no model depends on another. Others are refused."""


Body = TypeVar("Body", bound=RequestBody)


def repository_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.post("/v2/repository/index")
    async def index(request: Request) -> Response:
        """Triton's: the models there are, and whether each is ready; with `ready` only those that are."""
        body, ignored = await _body(request, serving, IndexRequest)
        try:
            names: tuple[str, ...] = serving.model().names
            state, reason = "READY", ""
        except HttpError as error:  # it loads, or the server shuts down
            names = () if body.ready else serving.config.served_model_names
            state, reason = "UNAVAILABLE", str(error)
        models = [index_entry(name, state, reason) for name in names]
        return JSONResponse(models, headers=ignored_header(ignored))

    @router.post("/v2/repository/models/{name}/load")
    async def load(request: Request, name: str) -> Response:
        """Triton's: nothing to do for a model that is served; others cannot be loaded."""
        served(serving, name)
        body, ignored = await _body(request, serving, RepositoryRequest)
        check_load(body)
        return Response(status_code=200, headers=ignored_header(ignored))

    @router.post("/v2/repository/models/{name}/unload")
    async def unload(request: Request, name: str) -> Response:
        """Triton's: refused, the server would have nothing left to serve."""
        served(serving, name)
        check_unload((await _body(request, serving, RepositoryRequest))[0])
        raise HttpError(
            400,
            f"failed to unload '{name}': it is the only model of this server; stop the server instead",
        )

    return router


def index_entry(name: str, state: str, reason: str) -> dict[str, str]:
    """A model in the index. `state`: READY, UNAVAILABLE, LOADING or UNLOADING."""
    return {"name": name, "version": VERSION, "state": state, "reason": reason}


def check_load(body: RepositoryRequest) -> None:
    """Raise UnsupportedParameterError for a model that is to be loaded otherwise than its files and settings say."""
    for given in body.parameters or {}:
        raise UnsupportedParameterError(
            f"{given[:80]} is not supported: the model is served as its files are", parameter=given
        )


def check_unload(body: RepositoryRequest) -> None:
    """Raise UnsupportedParameterError for what unloading cannot be told."""
    for given in body.parameters or {}:
        if given != "unload_dependents":
            raise UnsupportedParameterError(f"{given[:80]} is not supported", parameter=given)


async def repository_body(
    request: Request, bodies: BodyMemory, model: type[Body], *, strict: bool
) -> tuple[Body, list[str]]:
    """The body, which may be empty, and its fields that nobody knows. Raises HttpError, InvalidParameterError."""
    length = request.headers.get("content-length", "0")
    is_empty = length == "0" and "transfer-encoding" not in request.headers
    fields = {} if is_empty else (await read_body(request, bodies))[0]
    return parse_request(model, fields, NO_OTHERS, strict=strict)


async def _body(request: Request, serving: Serving, model: type[Body]) -> tuple[Body, list[str]]:
    strict = serving.config.strict_requests
    body, ignored = await repository_body(request, serving.bodies, model, strict=strict)
    serving.log_ignored(ignored)
    return body, ignored
