"""GET /v2/models/stats: what the model has done since the server started, in Triton's form."""

from typing import Any

from fastapi import APIRouter

from octavo.server.kserve.names import served
from octavo.server.kserve.signature import VERSION
from octavo.server.serving import Serving

ALL_STATISTICS = "/v2/models/stats"
_SUCCEEDED, _FAILED, _CANCELLED = ("stop", "length"), ("error",), ("abort",)


def statistics_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    # Before the route with a name: a model called `stats` has its statistics under its version.
    @router.get(ALL_STATISTICS)
    async def all_statistics() -> dict[str, Any]:
        """Triton's: statistics of the model. A choice of an answer counts as an inference."""
        return {"model_stats": [statistics(serving, serving.model().names[0])]}

    @router.get("/v2/models/{name}/stats")
    @router.get("/v2/models/{name}/versions/{version}/stats", include_in_schema=False)
    async def model_statistics(name: str, version: str | None = None) -> dict[str, Any]:
        """Triton's: statistics of one model."""
        served(serving, name, version)
        return {"model_stats": [statistics(serving, name)]}

    return router


def statistics(serving: Serving, name: str) -> dict[str, Any]:
    """Those of a model, under a name."""
    metrics = serving.metrics
    success = _durations(serving, _SUCCEEDED)
    return {
        "name": name,
        "version": VERSION,
        "last_inference": int(metrics.last_end_s * 1e3),
        "inference_count": success["count"],
        "execution_count": serving.client.stats.num_steps,
        "inference_stats": {
            "success": success,
            "fail": _durations(serving, _FAILED),
            "cancel": _durations(serving, _CANCELLED),
            # Waiting is part of the time of an inference; nothing else is measured apart.
            "compute_infer": success,
        },
        "batch_stats": [],
        "memory_usage": [],
    }


def _durations(serving: Serving, reasons: tuple[str, ...]) -> dict[str, int]:
    metrics = serving.metrics
    return {
        "count": sum(metrics.num_finished[reason] for reason in reasons),
        "ns": int(1e9 * sum(metrics.seconds_finished[reason] for reason in reasons)),
    }
