"""The lines of a batch file, as OpenAI's Batch API has them: one request, one answer."""

import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.errors import InvalidParameterError
from octavo.server.json_body import parse_json_object

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One line of the input."""

    custom_id: str
    url: str
    body: bytes
    """The JSON object of the request."""


def read_request(line: bytes, number: int) -> BatchRequest:
    """The request of a line. Raises InvalidParameterError that names the line and what is wrong with it."""
    where = f"line {number}"
    fields = parse_json_object(line.strip(), where)
    custom_id = fields.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise _wrong(where, "custom_id", "a non-empty string", custom_id)
    if fields.get("method", "POST") != "POST":
        raise _wrong(where, "method", "POST", fields["method"])
    if fields.get("url") not in URLS:
        raise _wrong(where, "url", f"one of {', '.join(URLS)}", fields.get("url"))
    body = fields.get("body")
    if not isinstance(body, dict):
        raise _wrong(where, "body", "an object", body)
    if body.get("stream"):
        raise _wrong(where, "body.stream", "absent: a batch has no streams", body["stream"])
    return BatchRequest(custom_id, fields["url"], msgspec.json.encode(body))


def custom_id_of(line: bytes) -> str | None:
    """The id of a line, as far as it has one: also of lines that are wrong elsewhere."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    custom_id = value.get("custom_id") if isinstance(value, dict) else None
    return custom_id if isinstance(custom_id, str) else None


def answer_line(custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """The line of a request that was asked, whatever came of it."""
    response = {
        "status_code": status,
        "request_id": request_id,
        "body": msgspec.json.decode(body) if body else None,
    }
    return _line(custom_id, response, None)


def error_line(custom_id: str | None, error: InvalidParameterError) -> bytes:
    """The line of a request that could not be asked."""
    return _line(
        custom_id,
        None,
        {"code": "invalid_request", "message": str(error), "param": error.parameter},
    )


def _line(custom_id: str | None, response: Any, error: Any) -> bytes:
    fields = {
        "id": f"batch_req_{uuid.uuid4().hex}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return msgspec.json.encode(fields) + b"\n"


def _wrong(where: str, name: str, must_be: str, given: object) -> InvalidParameterError:
    return InvalidParameterError(
        f"{where}: {name} must be {must_be}; given: {str(given)[:80]!r}",
        parameter=name,
        value=given,
    )
