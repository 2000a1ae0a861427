"""What stands in front of the models' applications: it chooses who answers, and says so.

Every model has a complete application of its own; what a route does for one model it does here unchanged. Requests
about models and about the server as a whole go to `routes`.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import OctavoError
from octavo.server.disconnect import run_while_connected
from octavo.server.http_errors import error_response, error_shape_of
from octavo.server.json_body import BodyMemory, read_body
from octavo.server.kserve.statistics import ALL_STATISTICS
from octavo.server.models.registry import Candidate, ModelRegistry
from octavo.server.models.request_size import named_model, prompt_chars
from octavo.server.openai.responses.stored_routes import STORED_PREFIX
from octavo.server.paths import route_path

MODEL_HEADER = "x-octavo-model"
REASON_HEADER = "x-octavo-model-choice"
UNAVAILABLE = frozenset((429, 503))
"""Statuses of a model that cannot answer now: its queue is full, or it has no engine."""
_OWN_PATHS = frozenset(
    ("/", "/health", "/ping", "/version", "/load", "/metrics", "/v2", ALL_STATISTICS)
)
_OWN_PREFIXES = ("/v1/models", STORED_PREFIX, "/v2/health/", "/v2/repository/")
_MODEL_PATH = "/v2/models/"
"""In KServe's protocol the path names the model."""
_IS_READY = "/ready"
"""Ends a path that asks about a model, which is not to be loaded for that."""

Choices: TypeAlias = Counter[tuple[str, str]]
"""Requests by (model that answered, why it was chosen)."""


class Dispatcher:
    """ASGI middleware over all models of a registry. Without a usable body the first model answers."""

    def __init__(
        self, app: ASGIApp, registry: ModelRegistry, bodies: BodyMemory, choices: Choices
    ) -> None:
        """`app`: has the routes about the server and its models."""
        self._choices = choices
        self._registry = registry
        self._app = app
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_own(scope):
            await self._app(scope, receive, send)
            return
        try:
            await self._dispatch(scope, receive, send)
        except ClientDisconnect:
            return  # nobody is left to be told
        except OctavoError as error:
            await error_response(error, error_shape_of(scope))(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.ExitStack() as held:
            take = held.enter_context(self._bodies.holding())
            data = await read_body(Request(scope, receive), self._bodies.max_bytes, take)
            asked = _Asked(scope, receive, data, held)
            candidates = list(self._registry.candidates(*_named(scope, data)))
            del data  # `asked` gives it back when an answer has begun
            for candidate in candidates:
                is_last = candidate is candidates[-1]
                if await self._answer(candidate, asked, send, is_last=is_last):
                    return

    async def _answer(
        self, candidate: Candidate, asked: "_Asked", send: Send, *, is_last: bool
    ) -> bool:
        """Let a model answer. False: it cannot now, nothing has been sent, and another may."""
        slot = candidate.slot
        try:
            app = await run_while_connected(
                lambda _: slot.app(has_fallback=not is_last), asked.receive
            )
        except OctavoError:
            if is_last:
                raise
            return False
        headers = {MODEL_HEADER: slot.name, REASON_HEADER: candidate.reason}
        answer = _Answer(send, headers, asked, is_last=is_last)
        with slot.answering():
            await app({**asked.scope}, asked.replayed(), answer.send)
        if not answer.is_refused:
            self._choices[slot.name, candidate.reason] += 1
        return not answer.is_refused


def _is_own(scope: Scope) -> bool:
    """Whether a request is about the server or its models. TGI's `POST /` is for a model."""
    path = route_path(scope)
    if path == "/" and scope["method"] == "POST":
        return False
    is_question = path.startswith(_MODEL_PATH) and path.endswith(_IS_READY)
    return path in _OWN_PATHS or path.startswith(_OWN_PREFIXES) or is_question


def _named(scope: Scope, body: bytes) -> tuple[str | None, int]:
    """The model that a request names, and the characters of its prompt."""
    path = route_path(scope)
    num_chars = prompt_chars(body) if body else 0
    if path.startswith(_MODEL_PATH):
        return path.removeprefix(_MODEL_PATH).partition("/")[0] or None, num_chars
    is_json = "json" in Headers(scope=scope).get("content-type", "")
    return (named_model(body) if body and is_json else None), num_chars


class _Asked:
    """A request whose body has been read. It is kept until an answer has begun: until then another model may get it."""

    def __init__(
        self, scope: Scope, receive: Receive, body: bytes, held: contextlib.ExitStack
    ) -> None:
        self.scope = scope
        self.receive = receive
        self._body = body
        self._held = held

    def replayed(self) -> Receive:
        """What an application receives: the body, then what comes."""
        is_first = True

        async def receive_again() -> Message:
            nonlocal is_first
            if not is_first:
                return await self.receive()
            is_first = False
            return {"type": "http.request", "body": self._body, "more_body": False}

        return receive_again

    def release(self) -> None:
        """Nobody will ask for the body again."""
        self._body = b""
        self._held.close()


class _Answer:
    """An answer on its way. One that only says that the model cannot answer now is kept back if others may."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], asked: _Asked, *, is_last: bool
    ) -> None:
        self.is_refused = False
        self._send = send
        self._headers = headers
        self._asked = asked
        self._is_last = is_last

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on, or keep it back."""
        if message["type"] == "http.response.start":
            self.is_refused = message["status"] in UNAVAILABLE and not self._is_last
            if not self.is_refused:
                MutableHeaders(scope=message).update(self._headers)
                self._asked.release()
        if not self.is_refused:
            await self._send(message)
