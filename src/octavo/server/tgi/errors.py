"""Errors as Text Generation Inference tells them: `{"error": text, "error_type": kind}`."""

from http import HTTPStatus
from typing import Any

from octavo.errors import (
    EngineDeadError,
    InvalidParameterError,
    QueueFullError,
    RequestFailedError,
    TemplateError,
    UserError,
)
from octavo.server.http_errors import ErrorShape, HttpError, message_of, status_of

_KINDS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (TemplateError, 422, "template_error", "Template error: "),
    (UserError, 422, "validation", "Input validation error: "),
    (QueueFullError, 429, "overloaded", "Model is overloaded: "),
    (RequestFailedError, 424, "generation", "Request failed during generation: "),
    (EngineDeadError, 503, "healthcheck", "unhealthy: "),
)
"""Class, status, kind, and how the text begins. The first that fits counts."""


def _status(error: Exception) -> int:
    return next(
        (status for kind, status, _, _ in _KINDS if isinstance(error, kind)), status_of(error)
    )


def _body(error: Exception) -> dict[str, Any]:
    for kind, _, name, prefix in _KINDS:
        if isinstance(error, kind):
            return {"error": prefix + _text(error), "error_type": name}
    return {"error": message_of(error), "error_type": _name(error)}


def _text(error: Exception) -> str:
    """The message, in TGI's words where a grammar is wrong: ours begin with the field and a colon."""
    text = message_of(error)
    if isinstance(error, InvalidParameterError) and text.startswith("grammar: "):
        return text.replace(": ", " is not valid: ", 1)
    return text


def _name(error: Exception) -> str:
    if not isinstance(error, HttpError):
        return "incomplete_generation"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "healthcheck"
    return HTTPStatus(error.status).phrase.lower().replace(" ", "_")


TGI_ERRORS = ErrorShape(_status, _body)
