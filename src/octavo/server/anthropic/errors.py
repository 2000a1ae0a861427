"""Errors as the Messages API tells them."""

from typing import Any

import msgspec

from octavo.server.http_errors import ErrorShape, message_of, status_of

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_object(error: Exception) -> dict[str, Any]:
    """`{"type": "error", "error": {"type", "message"}}`."""
    kind = _TYPES.get(status_of(error), "api_error")
    return {"type": "error", "error": {"type": kind, "message": message_of(error)}}


def event(name: str, fields: dict[str, Any]) -> bytes:
    """A frame of a stream. Its type is told twice, as in the original."""
    data = msgspec.json.encode({"type": name, **fields})
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


ANTHROPIC_ERRORS = ErrorShape(status_of, error_object, event=b"event: error\n")
