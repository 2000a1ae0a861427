"""What a KServe server says of itself and its model: metadata, configuration, live, ready."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from octavo.server.health import octavo_version
from octavo.server.kserve.names import served
from octavo.server.kserve.signature import INPUTS, OUTPUTS, VERSION
from octavo.server.kserve.tensors import TensorSpec
from octavo.server.serving import Serving

EXTENSIONS = (
    "binary_tensor_data",
    "generate",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)
_CONFIG_TYPES = {
    "BYTES": "TYPE_STRING",
    "BOOL": "TYPE_BOOL",
    "UINT32": "TYPE_UINT32",
    "FP32": "TYPE_FP32",
}


def server_metadata_routes(serving: Serving) -> APIRouter:
    """The routes about the server, bound to `serving`."""
    return routes_about_server(serving.model)


def routes_about_server(check_serving: Callable[[], object]) -> APIRouter:
    """Metadata, live and ready, however many models there are; `check_serving` raises HttpError 503 unless they serve."""
    router = APIRouter()

    @router.get("/v2")
    async def metadata() -> dict[str, Any]:
        """KServe's: name, version and extensions of the server."""
        return {"name": "octavo", "version": octavo_version(), "extensions": list(EXTENSIONS)}

    @router.head("/v2/health/live", include_in_schema=False)
    @router.get("/v2/health/live")
    async def live() -> Response:
        """KServe's: 200 while the server answers, also while its model loads."""
        return Response(status_code=200)

    @router.head("/v2/health/ready", include_in_schema=False)
    @router.get("/v2/health/ready")
    async def ready() -> Response:
        """KServe's: 200 when requests are served, else 503 with the progress."""
        check_serving()
        return Response(status_code=200)

    return router


def model_metadata_routes(serving: Serving) -> APIRouter:
    """The routes about its model, bound to `serving`."""
    router = APIRouter()

    @router.head("/v2/models/{name}/ready", include_in_schema=False)
    @router.head("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    @router.get("/v2/models/{name}/ready")
    @router.get("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    async def model_ready(name: str, version: str | None = None) -> Response:
        """KServe's: 200 when the model is served."""
        served(serving, name, version)
        return Response(status_code=200)

    @router.get("/v2/models/{name}")
    @router.get("/v2/models/{name}/versions/{version}", include_in_schema=False)
    async def model_metadata(name: str, version: str | None = None) -> dict[str, Any]:
        """KServe's: the model's tensors."""
        served(serving, name, version)
        return {
            "name": name,
            "versions": [VERSION],
            "platform": "octavo",
            "inputs": [spec.metadata() for spec in INPUTS],
            "outputs": [spec.metadata() for spec in OUTPUTS],
        }

    @router.get("/v2/models/{name}/config")
    @router.get("/v2/models/{name}/versions/{version}/config", include_in_schema=False)
    async def model_config(name: str, version: str | None = None) -> dict[str, Any]:
        """Triton's: the model's configuration."""
        served(serving, name, version)
        inputs = [_config(spec, is_optional=spec is not INPUTS[0]) for spec in INPUTS]
        return {
            "name": name,
            "backend": "octavo",
            "platform": "octavo",
            "max_batch_size": 0,
            "input": inputs,
            "output": [_config(spec, is_optional=False) for spec in OUTPUTS],
            "model_transaction_policy": {"decoupled": True},
        }

    return router


def _config(spec: TensorSpec, *, is_optional: bool) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": spec.name,
        "data_type": _CONFIG_TYPES[spec.datatype],
        "dims": list(spec.shape),
    }
    if is_optional:
        config["optional"] = True
    return config
