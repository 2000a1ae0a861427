"""The lines of a batch file, as OpenAI's Batch API has them: one request, one answer."""

import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from octavo.errors import InvalidParameterError
from octavo.server.json_body import parse_json_object
from octavo.server.openai.fields import NO_OTHERS, RequestBody, parse_request


class BatchLine(RequestBody):
    """One line of the input, as it is written."""

    custom_id: Annotated[str, Field(min_length=1)]
    """Stands in the answer."""
    method: Literal["POST"] | None = None
    url: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
    body: dict[str, Any]
    """The request."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a line asks for."""

    custom_id: str
    url: str
    body: bytes
    """The JSON object of the request."""


def read_request(line: bytes, number: int) -> BatchRequest:
    """The request of a line. Raises InvalidParameterError that names the line and what is wrong with it."""
    where = f"line {number}"
    fields = parse_json_object(line.strip(), where)
    try:
        # A line has no headers in which unknown fields could be named.
        given, _ = parse_request(BatchLine, fields, NO_OTHERS, strict=True)
    except InvalidParameterError as error:
        message = f"{where}: {error}"
        raise InvalidParameterError(
            message, parameter=error.parameter, value=error.value
        ) from error
    if given.body.get("stream"):
        raise InvalidParameterError(
            f"{where}: body.stream must be absent: a batch has no streams",
            parameter="body.stream",
            value=given.body["stream"],
        )
    return BatchRequest(given.custom_id, given.url, msgspec.json.encode(given.body))


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
