"""Errors as HTTP: `octavo.errors` becomes a status and a body. Each family of APIs has a shape for them; OpenAI's is here."""

import logging
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from octavo.errors import EngineDeadError, OctavoError, QueueFullError, UserError

_LOGGER = logging.getLogger(__name__)

_MAX_MESSAGE_LEN = 2000
"""A message repeats the value that was wrong; that value may be megabytes long."""

_TYPES = {
    400: "BadRequestError",
    401: "UnauthorizedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    431: "RequestHeadersTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class HttpError(OctavoError):
    """An answer that HTTP itself knows: no such model, wrong content type, body too large, not ready yet."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


def status_of(error: Exception) -> int:
    """The HTTP status that says what `error` means to the client."""
    if isinstance(error, HttpError):
        return error.status
    if isinstance(error, UserError):
        return 400
    if isinstance(error, (QueueFullError, EngineDeadError)):
        return 503
    return 500


def error_object(error: Exception) -> dict[str, Any]:
    """`{"error": {...}}` for a body or for an event inside a stream. `code` is the integer status."""
    status = status_of(error)
    param = None
    if isinstance(error, HttpError):
        param = error.param
    elif isinstance(error, UserError):
        param = error.parameter
    return {
        "error": {
            "message": message_of(error),
            "type": _TYPES.get(status, "Error"),
            "param": None if param is None else _shorten(param),
            "code": status,
        }
    }


def message_of(error: Exception) -> str:
    """What the client may read. What is not one of ours may hold paths or data: its text goes to the log only."""
    return _shorten(str(error) if isinstance(error, OctavoError) else "Internal server error")


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How a family of APIs says that something failed."""

    status: Callable[[Exception], int]
    body: Callable[[Exception], dict[str, Any]]
    """Also of an event inside a stream."""


OPENAI_ERRORS = ErrorShape(status_of, error_object)
_STATE = "error_shape"


def use_error_shape(scope: MutableMapping[str, Any], shape: ErrorShape) -> None:
    """From here on errors of this request have this shape."""
    scope.setdefault("state", {})[_STATE] = shape


def error_shape_of(scope: Mapping[str, Any]) -> ErrorShape:
    """The shape that errors of this request have."""
    shape: ErrorShape = scope.get("state", {}).get(_STATE, OPENAI_ERRORS)
    return shape


def error_response(error: Exception, shape: ErrorShape = OPENAI_ERRORS) -> Response:
    """The whole answer for `error`."""
    status = shape.status(error)
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}
    if isinstance(error, HttpError):
        headers, extra = error.headers, error.extra
    elif isinstance(error, QueueFullError):
        headers = {"retry-after": "1"}
    body = msgspec.json.encode({**shape.body(error), **extra})
    return Response(body, status, headers, media_type="application/json")


def raw_response(error: HttpError) -> bytes:
    """The same as bytes, for a connection on which no request has come so far. It is to be closed afterwards."""
    body = msgspec.json.encode(error_object(error))
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of `app`, its own or the framework's, an answer of the shape that the request uses."""

    async def known(request: Request, error: Exception) -> Response:
        if status_of(error) == 500:
            _LOGGER.error("request failed: %s", error)
        return error_response(error, error_shape_of(request.scope))

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{error.detail}: {request.method} {request.url.path}"
        known_error = HttpError(error.status_code, message, headers=error.headers)
        return error_response(known_error, error_shape_of(request.scope))

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it; the log of a proxy may

    async def unexpected(request: Request, error: Exception) -> Response:
        # The server logs the traceback.
        return error_response(error, error_shape_of(request.scope))

    app.add_exception_handler(OctavoError, known)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, unexpected)


def _shorten(message: str) -> str:
    if len(message) > _MAX_MESSAGE_LEN:
        message = message[:_MAX_MESSAGE_LEN] + "…"
    # A lone surrogate in what the client sent cannot be written as UTF-8.
    return message.encode("utf-8", "replace").decode("utf-8")
