"""Errors as HTTP: `octavo.errors` becomes a status and a body of OpenAI's shape. Nothing else decides a status."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

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


ErrorShape: TypeAlias = Callable[[Exception], dict[str, Any]]
"""What a protocol says of an error: the JSON object of the body."""


def answer_errors_as(request: Request, shape: ErrorShape) -> None:
    """Let the errors of this request have the shape of another protocol than OpenAI's."""
    request.state.error_shape = shape


def message_of(error: Exception) -> str:
    """What the client may read of an error, cut to a length that can be sent."""
    # What is not one of ours may hold paths or data: its text goes to the log, not to the client.
    return _shorten(str(error)) if isinstance(error, OctavoError) else "Internal server error"


def error_response(error: Exception, shape: ErrorShape = error_object) -> Response:
    """The whole answer for `error`."""
    status = status_of(error)
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}
    if isinstance(error, HttpError):
        headers, extra = error.headers, error.extra
    elif isinstance(error, QueueFullError):
        headers = {"retry-after": "1"}
    body = msgspec.json.encode({**shape(error), **extra})
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
    """Make every error of `app`, its own or the framework's, an answer of that one shape."""

    async def known(request: Request, error: Exception) -> Response:
        if status_of(error) == 500:
            _LOGGER.error("request failed: %s", error)
        return error_response(error, _shape_for(request))

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{error.detail}: {request.method} {request.url.path}"
        return error_response(HttpError(error.status_code, message, headers=error.headers))

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it; the log of a proxy may

    async def unexpected(request: Request, error: Exception) -> Response:
        return error_response(error, _shape_for(request))  # the server logs the traceback

    app.add_exception_handler(OctavoError, known)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, unexpected)


def _shape_for(request: Request) -> ErrorShape:
    shape: ErrorShape = getattr(request.state, "error_shape", error_object)
    return shape


def _shorten(message: str) -> str:
    if len(message) > _MAX_MESSAGE_LEN:
        message = message[:_MAX_MESSAGE_LEN] + "…"
    # A lone surrogate in what the client sent cannot be written as UTF-8.
    return message.encode("utf-8", "replace").decode("utf-8")
