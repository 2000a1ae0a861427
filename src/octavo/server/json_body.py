"""The body of a request as a dict: read within limits, and parsed more strictly than `json` alone does."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from starlette.requests import Request

from octavo.errors import InvalidParameterError
from octavo.server.http_errors import HttpError
from octavo.server.json_shape import check_shape

MAX_DEPTH = 64
"""Arrays and objects inside one another. JSON Schemas and tool definitions need about 20."""
BODIES_AT_ONCE = 16
"""How many bodies of the largest size are held at once, by all clients together."""
_THREAD_BYTES = 256 * 1024
"""Larger bodies are parsed in a thread, so that running streams do not wait for them."""


class BodyMemory:
    """Bounds what the bodies of all requests take together until they are parsed: many clients may send large ones."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of one body. There is room for BODIES_AT_ONCE of that size."""
        self.max_bytes = max_bytes
        self._num_free = BODIES_AT_ONCE * max_bytes

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Hold one body. What is yielded takes room for more of it, or raises HttpError 503."""
        taken = 0

        def take(num_bytes: int) -> None:
            nonlocal taken
            if num_bytes > self._num_free:
                raise HttpError(
                    503,
                    "The server holds as many large bodies as it may; try again",
                    headers={"retry-after": "1"},
                )
            taken += num_bytes
            self._num_free -= num_bytes

        try:
            yield take
        finally:
            self._num_free += taken


async def read_json_object(request: Request, memory: BodyMemory) -> dict[str, Any]:
    """The body as a dict.

    Raises HttpError 413, 415 or 503, and InvalidParameterError for everything that is not one JSON object in UTF-8.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpError(
            415, f"The content type must be application/json; given: {content_type or 'none'}"
        )
    _check_plain(request)
    with memory.holding() as take:
        return await _parse(await read_body(request, memory.max_bytes, take))


async def read_json_and_rest(
    request: Request, memory: BodyMemory, num_json_bytes: int | None
) -> tuple[dict[str, Any], bytes]:
    """The first so many bytes of the body as a dict, or all of it, and what comes behind them.

    As `read_json_object`, but the content type may be missing or application/octet-stream, as KServe's clients have it.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in ("", "application/json", "application/octet-stream"):
        raise HttpError(
            415,
            f"The content type must be application/json or application/octet-stream; given: {content_type}",
        )
    _check_plain(request)
    with memory.holding() as take:
        body = await read_body(request, memory.max_bytes, take)
        if num_json_bytes is None:
            return await _parse(body), b""
        if num_json_bytes > len(body):
            raise InvalidParameterError(
                f"The JSON must have at most {len(body)} bytes, as many as the body; given: {num_json_bytes}"
            )
        return await _parse(body[:num_json_bytes]), body[num_json_bytes:]


def _check_plain(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise HttpError(415, f"The body must not be compressed; given: {encoding}")


async def _parse(body: bytes) -> dict[str, Any]:
    if len(body) > _THREAD_BYTES:
        return await asyncio.to_thread(parse_json_object, body)
    return parse_json_object(body)


async def read_body(request: Request, max_bytes: int, take: Callable[[int], None]) -> bytes:
    """The bytes of a body; `take` is asked for room. Raises HttpError 413, and what `take` raises."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(declared, max_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(f"more than {max_bytes}", max_bytes)
        take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(given: str, max_bytes: int) -> HttpError:
    return HttpError(413, f"The body must have at most {max_bytes} bytes; given: {given}")


def parse_json_object(body: bytes, what: str = "The body") -> dict[str, Any]:
    """Parse one JSON object. Refused: duplicate names, NaN, numbers beyond float64, lone surrogates, depth."""
    if not body:
        raise InvalidParameterError(f"{what} is empty; a JSON object was expected")
    if body.startswith(b"\xef\xbb\xbf"):
        raise InvalidParameterError(f"{what} must be UTF-8 without a byte order mark")
    check_shape(body, what)
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidParameterError(f"{what} is not valid UTF-8: {error.reason}") from None
    except RecursionError:
        raise _too_deep(what) from None
    except InvalidParameterError:
        raise
    except ValueError as error:  # JSONDecodeError, or an integer with thousands of digits
        raise InvalidParameterError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidParameterError(
            f"{what} must be a JSON object; given: {_json_type_name(value)}"
        )
    _check_depth(body, value, what)
    _check_surrogates(body, value, what)
    return value


def _check_depth(body: bytes, value: object, what: str) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(what)


def _too_deep(what: str) -> InvalidParameterError:
    return InvalidParameterError(f"{what} is nested deeper than {MAX_DEPTH} levels")


def _check_surrogates(body: bytes, value: object, what: str) -> None:
    if b"\\ud" not in body and b"\\uD" not in body:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParameterError(
            f"{what} holds a lone surrogate (\\ud800 to \\udfff); text must be valid Unicode"
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = _first_repeated(name for name, _ in pairs)
        raise InvalidParameterError(
            f"The name {twice!r} occurs twice in an object", parameter=twice
        )
    return value


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name occurs twice")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise InvalidParameterError(f"The number {digits[:40]} is too large", value=digits)
    return value


def _no_constant(name: str) -> NoReturn:
    raise InvalidParameterError(f"{name} is not valid JSON", value=name)


def _json_type_name(value: object) -> str:
    if value is None:
        return "null"
    names = {
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names[type(value)]


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
)
