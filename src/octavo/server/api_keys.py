"""Who may use the server: API keys. Every route but /health asks for one where keys are set, those of a later version too."""

import hmac
from collections.abc import Iterable
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.http_errors import HttpError, error_response, error_shape_of
from octavo.server.paths import route_path

OPEN_PATH = "/health"
"""Says nothing but whether the server is up. Load balancers have no keys."""
_SCHEME = "bearer "


def api_key_of(headers: Headers) -> str:
    """The key that a request brings: `Authorization: Bearer KEY`, or Anthropic's `x-api-key`. Empty if it has none."""
    authorization = headers.get("authorization", "")
    if authorization[: len(_SCHEME)].lower() == _SCHEME:
        return authorization[len(_SCHEME) :].strip()
    return headers.get("x-api-key", "").strip()


class ApiKeys:
    """ASGI middleware that lets only requests with one of the keys through. Nothing of a refused request is read."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._may_pass(scope):
            await self._app(scope, receive, send)
            return
        error = HttpError(
            401,
            "This server needs an API key: send it as `Authorization: Bearer KEY`",
            headers={"www-authenticate": "Bearer"},
        )
        await error_response(error, error_shape_of(scope))(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        if scope["type"] == "http" and route_path(scope) == OPEN_PATH:
            return True
        given = _digest(api_key_of(Headers(scope=scope)))
        is_known = False
        for (
            digest
        ) in self._digests:  # all of them: the time tells nothing, neither which nor how much of it
            is_known |= hmac.compare_digest(given, digest)
        return is_known


def _digest(key: str) -> bytes:
    """Of the same length for all keys, which `compare_digest` needs to take the same time for all."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
