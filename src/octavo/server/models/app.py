"""The application of a server of several models, put together."""

from dataclasses import dataclass

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from octavo.config import ServerConfig
from octavo.server.health import octavo_version
from octavo.server.http_errors import install_error_handlers
from octavo.server.json_body import BodyMemory
from octavo.server.models.dispatch import MODEL_HEADER, REASON_HEADER, Choices, Dispatcher
from octavo.server.models.metrics import ModelsExposition
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.routes import model_routes, server_routes
from octavo.server.openai.fields import IGNORED_FIELDS_HEADER
from octavo.server.request_ids import HEADER, RequestIds


@dataclass(frozen=True, slots=True)
class ModelsApp:
    """The ASGI application, and what counts for it."""

    asgi: ASGIApp
    exposition: ModelsExposition


def build_models_app(registry: ModelRegistry, config: ServerConfig) -> ModelsApp:
    """One application over all models of `registry`, which the caller loads."""
    choices: Choices = Choices()
    exposition = ModelsExposition(registry, choices)
    bodies = BodyMemory(config.max_body_bytes)
    routes = FastAPI(title="Octavo", version=octavo_version(), redirect_slashes=False)
    install_error_handlers(routes)
    routes.include_router(server_routes(registry, exposition))
    routes.include_router(model_routes(registry, bodies, config.shutdown_timeout_s))
    asgi: ASGIApp = Dispatcher(registry, routes, bodies, choices)
    if config.allowed_origins:
        asgi = CORSMiddleware(
            asgi,
            allow_origins=list(config.allowed_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[HEADER, IGNORED_FIELDS_HEADER, MODEL_HEADER, REASON_HEADER],
        )
    return ModelsApp(RequestIds(asgi), exposition)
