"""The ASGI application, put together. It has no globals: two applications in one process do not meet."""

import contextlib
from collections.abc import AsyncIterator, Callable

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware

from octavo.config import SchedulingPolicy, ServerConfig
from octavo.engine.client import EngineClient
from octavo.server.anthropic.messages import messages_routes
from octavo.server.anthropic.requests import CountTokensRequest, MessagesRequest
from octavo.server.health import health_routes, octavo_version
from octavo.server.http_errors import install_error_handlers
from octavo.server.openai.chat import chat_routes
from octavo.server.openai.completions import completion_routes
from octavo.server.openai.embeddings.request import EmbeddingsRequest
from octavo.server.openai.embeddings.routes import embeddings_routes
from octavo.server.openai.fields import IGNORED_FIELDS_HEADER
from octavo.server.openai.models import model_routes
from octavo.server.openai.requests import (
    ChatPrefixRequest,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TextPrefixRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from octavo.server.openai.responses.request import ResponsesRequest
from octavo.server.openai.responses.routes import responses_routes
from octavo.server.openapi import describe
from octavo.server.prefixes import prefix_routes
from octavo.server.request_ids import HEADER, RequestIds
from octavo.server.serving import Serving
from octavo.server.tokenize import tokenize_routes
from octavo.text.assets import TextAssets

_ROUTES: tuple[Callable[[Serving], APIRouter], ...] = (
    health_routes,
    model_routes,
    completion_routes,
    chat_routes,
    responses_routes,
    messages_routes,
    embeddings_routes,
    tokenize_routes,
    prefix_routes,
)
_BODIES: tuple[type[BaseModel], ...] = (
    CompletionRequest,
    ChatRequest,
    TokenizeCompletionRequest,
    TokenizeChatRequest,
    DetokenizeRequest,
    TextPrefixRequest,
    ChatPrefixRequest,
    ResponsesRequest,
    EmbeddingsRequest,
    MessagesRequest,
    CountTokensRequest,
)


def build_app(
    client: EngineClient,
    assets: TextAssets | Callable[[], TextAssets],
    config: ServerConfig,
    *,
    policy: SchedulingPolicy = SchedulingPolicy.FCFS,
) -> FastAPI:
    """The application for one engine.

    `assets` may be a function that loads them; then `app.state.serving.load()` must be awaited, and until it has
    returned every route but /version, /load and /metrics answers 503 with the progress.
    """
    serving = Serving(client, assets, config, policy)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        serving.close()

    app = FastAPI(
        title="Octavo", version=octavo_version(), lifespan=lifespan, redirect_slashes=False
    )
    app.state.serving = serving
    install_error_handlers(app)
    for routes in _ROUTES:
        app.include_router(routes(serving))
    add_middleware(app, config)
    describe(app, octavo_version(), _BODIES)
    return app


def add_middleware(app: FastAPI, config: ServerConfig, *exposed: str) -> None:
    """What stands around all routes. `exposed`: more headers of answers that pages of other origins may read."""
    if config.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.allowed_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[HEADER, IGNORED_FIELDS_HEADER, *exposed],
        )
    app.add_middleware(RequestIds)
