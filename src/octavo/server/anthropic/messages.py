"""Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from octavo.server.anthropic.answer import MessagesAnswer
from octavo.server.anthropic.block_fields import unknown_in_lists
from octavo.server.anthropic.conversation import chat_request
from octavo.server.anthropic.requests import (
    COUNT_FIELDS,
    MESSAGES_FIELDS,
    CountTokensRequest,
    MessagesRequest,
)
from octavo.server.generation import arrival_time
from octavo.server.json_body import read_json_object
from octavo.server.openai.chat import chat_exchange
from octavo.server.openai.chat_prompt import chat_prompt
from octavo.server.openai.dialect import Dialect
from octavo.server.openai.exchange import send
from octavo.server.openai.fields import ignored_header, parse_request, refuse_unknown
from octavo.server.openapi import json_body
from octavo.server.serving import Serving

_DIALECT = Dialect(
    "msg", "input_schema", {"response_format": "output_config.format", "stop": "stop_sequences"}
)


def messages_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.post("/v1/messages", openapi_extra=json_body(MessagesRequest))
    async def create_message(request: Request) -> Response:
        """Answer a conversation, as Anthropic's API does."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        arrived = arrival_time()
        body, ignored = parse_request(
            MessagesRequest, fields, MESSAGES_FIELDS, strict=serving.config.strict_requests
        )
        model.check_name(body.model)
        ignored += unknown_in_lists(body)
        chat = chat_request(body)
        made = await chat_exchange(serving, model, chat, request, _DIALECT, ignored, arrived)
        answer = MessagesAnswer(made.exchange, made.plan)
        return await send(made.exchange, answer, request, last=b"")

    @router.post("/v1/messages/count_tokens", openapi_extra=json_body(CountTokensRequest))
    async def count_tokens(request: Request) -> Response:
        """How many tokens a conversation has, without answering it."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        body, ignored = parse_request(
            CountTokensRequest, fields, COUNT_FIELDS, strict=serving.config.strict_requests
        )
        model.check_name(body.model)
        ignored += unknown_in_lists(body)
        if serving.config.strict_requests:
            refuse_unknown(ignored)
        serving.log_ignored(ignored)
        chat = chat_request(body)
        may_call = chat.tool_choice != "none"
        prompt = await chat_prompt(
            serving, model, chat, add_special_tokens=False, may_call=may_call
        )
        return JSONResponse(
            {"input_tokens": len(prompt.token_ids)}, headers=ignored_header(ignored)
        )

    return router
