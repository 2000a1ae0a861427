"""Routes of responses that are kept: get one, list what it answered, forget it. They need no model."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from octavo.server.http_errors import HttpError
from octavo.server.openai.cache_salt import key_hash
from octavo.server.openai.responses.store import MAX_STORED_RESPONSES, Responses

STORED_PREFIX = "/v1/responses/"
"""Where their paths begin."""


def stored_response_routes(responses: Responses) -> APIRouter:
    """The routes, over one store."""
    router = APIRouter()

    @router.get("/v1/responses/{response_id}")
    async def retrieve_response(response_id: str, request: Request) -> Response:
        """A stored response."""
        stored = await responses.get(key_hash(request), response_id)
        if stored is None:
            raise not_found(response_id)
        return Response(stored.body, media_type="application/json")

    @router.get("/v1/responses/{response_id}/input_items")
    async def list_input_items(response_id: str, request: Request) -> Response:
        """What a stored response answered, newest first."""
        stored = await responses.get(key_hash(request), response_id)
        if stored is None:
            raise not_found(response_id)
        items = msgspec.json.decode(stored.items)
        if request.query_params.get("order", "desc") == "desc":
            items = items[::-1]
        return JSONResponse(
            {
                "object": "list",
                "data": items,
                "first_id": items[0]["id"],
                "last_id": items[-1]["id"],
                "has_more": False,
            }
        )

    @router.delete("/v1/responses/{response_id}")
    async def delete_response(response_id: str, request: Request) -> Response:
        """Forget a stored response."""
        if not await responses.delete(key_hash(request), response_id):
            raise not_found(response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    return router


def not_found(response_id: str, param: str | None = None) -> HttpError:
    """The error for a response that is not kept."""
    return HttpError(
        404,
        f"Response with id {response_id[:200]!r} not found: it was made with store=false, by another server "
        f"or with another key, or is older than the newest {MAX_STORED_RESPONSES}.",
        param=param,
    )
