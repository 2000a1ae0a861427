"""The ASGI application, put together. It has no globals: two applications in one process do not meet."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware

from octavo.config import SchedulingPolicy, ServerConfig
from octavo.engine.client import EngineClient
from octavo.server.anthropic.errors import ANTHROPIC_ERRORS
from octavo.server.anthropic.messages import messages_routes
from octavo.server.anthropic.requests import CountTokensRequest, MessagesRequest
from octavo.server.api_keys import ApiKeys
from octavo.server.health import health_routes, octavo_version
from octavo.server.http_errors import ErrorShape, install_error_handlers
from octavo.server.kserve.errors import KSERVE_ERRORS
from octavo.server.kserve.generate import triton_generate_routes
from octavo.server.kserve.infer import infer_routes
from octavo.server.kserve.metadata import model_metadata_routes, server_metadata_routes
from octavo.server.kserve.repository import repository_routes
from octavo.server.kserve.requests import InferRequest, TritonGenerateRequest
from octavo.server.kserve.statistics import statistics_routes
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
from octavo.server.openai.responses.store import Responses
from octavo.server.openai.responses.stored_routes import stored_response_routes
from octavo.server.openapi import describe
from octavo.server.paths import ErrorShapes, RootPath
from octavo.server.prefixes import prefix_routes
from octavo.server.request_ids import HEADER, RequestIds
from octavo.server.serving import Serving
from octavo.server.tgi.errors import TGI_ERRORS
from octavo.server.tgi.generate import generate_routes
from octavo.server.tgi.info import info_routes
from octavo.server.tgi.requests import GenerateRequest
from octavo.server.tgi.tokens import chat_tokenize_routes
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
    generate_routes,
    chat_tokenize_routes,
    info_routes,
    statistics_routes,
    server_metadata_routes,
    model_metadata_routes,
    infer_routes,
    triton_generate_routes,
    repository_routes,
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
    GenerateRequest,
    InferRequest,
    TritonGenerateRequest,
)
_ERROR_SHAPES: Mapping[str, ErrorShape] = {
    **dict.fromkeys(("/generate", "/generate_stream", "/info", "/chat_tokenize"), TGI_ERRORS),
    "/v1/messages": ANTHROPIC_ERRORS,
    "/v2": KSERVE_ERRORS,
}
"""By the path, or what it begins with; else OpenAI's."""


def build_app(
    client: EngineClient,
    assets: TextAssets | Callable[[], TextAssets],
    config: ServerConfig,
    *,
    policy: SchedulingPolicy = SchedulingPolicy.FCFS,
    responses: Responses | None = None,
) -> FastAPI:
    """The application for one engine.

    `assets` may be a function that loads them; then `app.state.serving.load()` must be awaited, and until it has
    returned every route but /version, /load and /metrics answers 503 with the progress. `responses`: where they are
    kept, if other applications share them.
    """
    serving = Serving(client, assets, config, policy, responses)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        serving.close()

    docs: dict[str, Any] = (
        {"docs_url": None, "redoc_url": None, "openapi_url": None} if config.disable_docs else {}
    )
    app = FastAPI(
        title="Octavo", version=octavo_version(), lifespan=lifespan, redirect_slashes=False, **docs
    )
    app.state.serving = serving
    install_error_handlers(app)
    for routes in _ROUTES:
        app.include_router(routes(serving))
    app.include_router(stored_response_routes(serving.responses))
    add_middleware(app, config)
    describe(app, octavo_version(), _BODIES)
    return app


def add_middleware(app: FastAPI, config: ServerConfig, *exposed: str) -> None:
    """What stands around all routes, from the inside out: what is added last sees a request first.

    `exposed`: more headers of answers that pages of other origins may read.
    """
    if config.api_keys:
        app.add_middleware(ApiKeys, keys=config.api_keys)
    if config.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.allowed_origins),
            allow_methods=list(config.allowed_methods),
            allow_headers=list(config.allowed_headers),
            allow_credentials=config.allow_credentials,
            expose_headers=[HEADER, IGNORED_FIELDS_HEADER, *exposed],
        )
    app.add_middleware(ErrorShapes, shapes=_ERROR_SHAPES)
    if config.root_path:
        app.add_middleware(RootPath, prefix=config.root_path)
    app.add_middleware(RequestIds)
