"""Errors as the KServe protocol tells them: `{"error": text}`."""

from typing import Any

from octavo.server.http_errors import ErrorShape, message_of, status_of


def _body(error: Exception) -> dict[str, Any]:
    return {"error": message_of(error)}


KSERVE_ERRORS = ErrorShape(status_of, _body)
