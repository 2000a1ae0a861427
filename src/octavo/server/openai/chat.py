"""POST /v1/chat/completions."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.generation import arrival_time
from octavo.server.json_body import read_json_object
from octavo.server.openai.cache_salt import cache_salt_of
from octavo.server.openai.chat_answer import ChatAnswer
from octavo.server.openai.chat_prompt import chat_prompt
from octavo.server.openai.exchange import Exchange, generation_request, now, response_id, send
from octavo.server.openai.fields import ignored_header, parse_request, refuse_unknown
from octavo.server.openai.known_fields import CHAT_FIELDS
from octavo.server.openai.requests import ChatRequest
from octavo.server.openai.sampling import chat_params
from octavo.server.openapi import json_body
from octavo.server.serving import Serving


def chat_routes(serving: Serving) -> APIRouter:
    """The route, bound to `serving`."""
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=json_body(ChatRequest))
    async def create_chat_completion(request: Request) -> Response:
        """Answer a conversation."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        arrived = arrival_time()
        strict = serving.config.strict_requests
        body, ignored = parse_request(ChatRequest, fields, CHAT_FIELDS, strict=strict)
        model.check_name(body.model)
        check_tools(body)
        params = chat_params(body, model.assets.sampling_defaults)
        prompt = await chat_prompt(
            serving, model, body, add_special_tokens=bool(body.add_special_tokens)
        )
        if strict:
            refuse_unknown(prompt.ignored_fields)
        ignored += prompt.ignored_fields
        serving.log_ignored(ignored)
        exchange = Exchange(
            serving=serving,
            model=model,
            request=generation_request(
                serving,
                model,
                body,
                params,
                [prompt.token_ids],
                default_max_tokens=None,
                cache_salt=cache_salt_of(body.cache_salt, request, serving.config),
                arrived=arrived,
            ),
            body=body,
            response_id=response_id("chatcmpl", body, request),
            created=now(),
            headers=ignored_header(ignored),
        )
        echo = prompt.echo if body.echo else ""
        return await send(exchange, ChatAnswer(exchange, body, echo), request)

    return router


def check_tools(body: ChatRequest) -> None:
    """Raise for tool calls that would have to be made. Tools that may not be called only reach the template."""
    choice = body.tool_choice
    if body.tools:
        if choice != "none":
            raise UnsupportedParameterError(
                "tools are only supported with tool_choice none: calls are not available",
                parameter="tools" if choice is None else "tool_choice",
                value=choice,
            )
    elif choice not in (None, "none"):
        raise InvalidParameterError(
            "tool_choice needs tools", parameter="tool_choice", value=choice
        )
