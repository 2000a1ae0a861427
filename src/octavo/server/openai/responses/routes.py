"""POST /v1/responses: make a response. Those that are kept: `stored_routes`."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import UnsupportedParameterError
from octavo.server.generation import arrival_time
from octavo.server.json_body import read_json_object
from octavo.server.openai.cache_salt import key_hash
from octavo.server.openai.chat import chat_exchange
from octavo.server.openai.dialect import Dialect
from octavo.server.openai.exchange import send
from octavo.server.openai.fields import parse_request
from octavo.server.openai.responses.answer import ResponsesAnswer
from octavo.server.openai.responses.conversation import (
    chat_request,
    input_messages,
    item_messages,
)
from octavo.server.openai.responses.item_fields import unknown_in_lists
from octavo.server.openai.responses.request import RESPONSES_FIELDS, ResponsesRequest
from octavo.server.openai.responses.store import StoredResponse
from octavo.server.openai.responses.stored_routes import not_found
from octavo.server.openapi import json_body
from octavo.server.serving import Serving

_DIALECT = Dialect(
    "resp",
    "parameters",
    {
        "max_tokens": "max_output_tokens",
        "response_format": "text.format",
        "logprobs": "top_logprobs",
    },
)


def responses_routes(serving: Serving) -> APIRouter:
    """The route, bound to `serving`."""
    router = APIRouter()

    @router.post("/v1/responses", openapi_extra=json_body(ResponsesRequest))
    async def create_response(request: Request) -> Response:
        """Answer an input, or go on from an earlier response."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        arrived = arrival_time()
        body, ignored = parse_request(
            ResponsesRequest, fields, RESPONSES_FIELDS, strict=serving.config.strict_requests
        )
        model.check_name(body.model)
        ignored += unknown_in_lists(body)
        tenant = key_hash(request)
        messages = input_messages(body)
        if body.previous_response_id is not None:
            messages = [*await _earlier(serving, tenant, body.previous_response_id), *messages]
        chat = chat_request(body, messages)
        made = await chat_exchange(serving, model, chat, request, _DIALECT, ignored, arrived)
        if chat.logprobs and not made.plan.is_plain:
            raise _no_logprobs(body)

        async def keep(response: dict[str, Any]) -> None:
            if body.store is not False:
                stored = _stored(body, messages, response)
                await serving.responses.put(tenant, response["id"], stored)

        answer = ResponsesAnswer(made.exchange, made.plan, body, keep)
        return await send(made.exchange, answer, request, last=b"")

    return router


async def _earlier(serving: Serving, tenant: str, response_id: str) -> list[dict[str, Any]]:
    """The conversation up to a response that is kept. Raises HttpError 404."""
    stored = await serving.responses.get(tenant, response_id)
    if stored is None:
        raise not_found(response_id, "previous_response_id")
    return msgspec.json.decode(stored.messages, type=list[dict[str, Any]])


def _no_logprobs(body: ResponsesRequest) -> UnsupportedParameterError:
    return UnsupportedParameterError(
        "log-probabilities are not available where answers are split into text, calls and reasoning; "
        "send no tools or tool_choice none to a model without reasoning, or use /v1/chat/completions",
        parameter="top_logprobs" if body.top_logprobs else "include",
    )


def _stored(
    body: ResponsesRequest, messages: list[dict[str, Any]], response: dict[str, Any]
) -> StoredResponse:
    conversation = [*messages, *item_messages(response["output"], "output")]
    items = _input_items(body, response["id"])
    return StoredResponse(*map(msgspec.json.encode, (response, conversation, items)))


def _input_items(body: ResponsesRequest, response_id: str) -> list[dict[str, Any]]:
    """The input as items with ids, as the API lists them."""
    given = body.input
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    items = []
    for i, item in enumerate(given):
        item = {"type": "message", "id": f"item-{response_id}-{i}", "status": "completed", **item}
        if item["type"] == "message":
            kind = "output_text" if item["role"] == "assistant" else "input_text"
            if isinstance(item["content"], str):
                item["content"] = [{"type": kind, "text": item["content"]}]
        items.append(item)
    return items
