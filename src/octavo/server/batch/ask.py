"""Asks an ASGI application without a socket."""

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    status: int
    request_id: str
    body: bytes


async def ask(app: ASGIApp, url: str, body: bytes) -> Reply:
    """POST a JSON body. The client is there until the answer is."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": url,
        "raw_path": url.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"host", b"batch")],
        "client": None,
        "server": None,
    }
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    never = asyncio.Event()
    status, request_id, parts = 0, "", bytearray()

    async def receive() -> Message:
        if requests:
            return requests.pop()
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, request_id
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = dict(message["headers"])
            request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        else:
            parts.extend(message.get("body", b""))

    await app(scope, receive, send)
    return Reply(status, request_id, bytes(parts))
