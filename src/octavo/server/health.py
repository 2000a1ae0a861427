"""How the server is: /health, /ping, /version, /load, /metrics. These answer while the model loads, too."""

from importlib import metadata
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.serving import Serving


def health_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.head("/ping", include_in_schema=False)
    @router.get("/health")
    @router.get("/ping")
    @router.post("/ping")
    async def health() -> Response:
        """200 when requests are served; 503 while loading (with the progress), draining, and without an engine."""
        serving.model()
        return Response(status_code=200)

    @router.get("/")
    async def root() -> dict[str, str]:
        """What this is, and where to go on."""
        return {"name": "Octavo", "version": octavo_version(), "api": "/v1", "docs": "/docs"}

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The version of the server."""
        return {"version": octavo_version()}

    @router.get("/load")
    async def load() -> dict[str, Any]:
        """Requests for generation that are open."""
        return {"server_load": serving.num_open + serving.num_open_elsewhere()}

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus metrics."""
        body, content_type = serving.exposition.write(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return router


def octavo_version() -> str:
    """The installed version, or a word for a source tree that is not installed."""
    try:
        return metadata.version("octavo")
    except metadata.PackageNotFoundError:
        return "uninstalled"
