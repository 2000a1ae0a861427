"""Every response carries `x-request-id`: the client's own, or a new one."""

import uuid

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
MAX_LEN = 256


class RequestIds:
    """ASGI middleware that gives each request its id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if "request_id" in state:  # an application around this one has given it already
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _is_usable(given) else uuid.uuid4().hex
        state["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id_of(request: Request) -> str:
    """The id of a request."""
    request_id: str = request.state.request_id
    return request_id


def _is_usable(given: str) -> bool:
    return 0 < len(given) <= MAX_LEN and given.isascii() and given.isprintable()
