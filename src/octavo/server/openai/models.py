"""GET /v1/models."""

from typing import Any

from fastapi import APIRouter

from octavo.server.openai.exchange import now
from octavo.server.serving import ServedModel, Serving


def model_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()
    created = now()

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        """The model under each of its names."""
        model = serving.model()
        return {"object": "list", "data": [_card(model, name, created) for name in model.names]}

    @router.get("/v1/models/{name:path}")
    async def retrieve_model(name: str) -> dict[str, Any]:
        """The model under one name."""
        model = serving.model()
        model.check_name(name)
        return _card(model, name, created)

    return router


def _card(model: ServedModel, name: str, created: int) -> dict[str, Any]:
    return model_card(name, model.names[0], model.ready.max_model_len, created)


def model_card(name: str, root: str, max_model_len: int | None, created: int) -> dict[str, Any]:
    """One entry of the list. `root` is the name in answers; `max_model_len` is None while that is not known."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "octavo",
        "root": root,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [_permission(name, created)],
    }


def _permission(name: str, created: int) -> dict[str, Any]:
    # Long gone from OpenAI's API, but vLLM sends it and some clients still require it.
    return {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
