"""The application of a server of several models, put together."""

from dataclasses import dataclass

from fastapi import FastAPI

from octavo.config import ServerConfig
from octavo.server.app import add_middleware
from octavo.server.health import octavo_version
from octavo.server.http_errors import install_error_handlers
from octavo.server.json_body import BodyMemory
from octavo.server.models.dispatch import MODEL_HEADER, REASON_HEADER, Choices, Dispatcher
from octavo.server.models.metrics import ModelsExposition
from octavo.server.models.registry import ModelRegistry
from octavo.server.models.repository import kserve_routes, repository_routes
from octavo.server.models.routes import model_routes, server_routes
from octavo.server.openai.responses.stored_routes import stored_response_routes


@dataclass(frozen=True, slots=True)
class ModelsApp:
    """The application, and what counts for it."""

    app: FastAPI
    exposition: ModelsExposition


def build_models_app(registry: ModelRegistry, config: ServerConfig) -> ModelsApp:
    """One application over all models of `registry`, which the caller loads."""
    choices: Choices = Choices()
    exposition = ModelsExposition(registry, choices)
    bodies = BodyMemory(config.max_body_bytes)
    app = FastAPI(title="Octavo", version=octavo_version(), redirect_slashes=False)
    install_error_handlers(app)
    app.include_router(server_routes(registry, exposition))
    app.include_router(model_routes(registry, bodies, config.shutdown_timeout_s))
    app.include_router(kserve_routes(registry))
    app.include_router(repository_routes(registry, bodies, config))
    app.include_router(stored_response_routes(registry.responses))
    app.add_middleware(Dispatcher, registry=registry, bodies=bodies, choices=choices)
    add_middleware(app, config, MODEL_HEADER, REASON_HEADER)
    return ModelsApp(app, exposition)
