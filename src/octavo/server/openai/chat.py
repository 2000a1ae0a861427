"""POST /v1/chat/completions."""

from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.generation import arrival_time
from octavo.server.json_body import read_json_object
from octavo.server.openai.answer_plan import AnswerPlan, plan_answer, tool_choice_of
from octavo.server.openai.chat_answer import ChatAnswer
from octavo.server.openai.chat_prompt import ChatPrompt, chat_prompt
from octavo.server.openai.dialect import CHAT, Dialect
from octavo.server.openai.exchange import Exchange, generation_request, now, response_id, send
from octavo.server.openai.fields import ignored_header, parse_request, refuse_unknown
from octavo.server.openai.known_fields import CHAT_FIELDS
from octavo.server.openai.requests import ChatRequest
from octavo.server.openai.sampling import chat_params
from octavo.server.openapi import json_body
from octavo.server.serving import ServedModel, Serving


class ChatExchange(NamedTuple):
    """A conversation, checked."""

    exchange: Exchange
    prompt: ChatPrompt
    plan: AnswerPlan


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
        made = await chat_exchange(serving, model, body, request, CHAT, ignored, arrived)
        echo = made.prompt.echo if body.echo else ""
        return await send(made.exchange, ChatAnswer(made.exchange, body, made.plan, echo), request)

    return router


async def chat_exchange(
    serving: Serving,
    model: ServedModel,
    body: ChatRequest,
    request: Request,
    dialect: Dialect,
    ignored: list[str],
    arrived: float,
) -> ChatExchange:
    """A conversation, checked: what chat and the protocols that are put into its terms share.

    `ignored` names unknown fields of the request. Raises UserError.
    """
    with dialect.telling():
        model.check_generates()
        choice = tool_choice_of(body, dialect.schema_field)
        terms = serving.terms(request, arrived, body)
        params = chat_params(body, model.assets.sampling_defaults)
        prompt = await chat_prompt(
            serving,
            model,
            body,
            add_special_tokens=bool(body.add_special_tokens),
            may_call=choice is not None,
        )
        plan = plan_answer(body, choice, prompt.template, serving.config, prompt.text)
        ignored = ignored + prompt.ignored_fields
        if serving.config.strict_requests:
            refuse_unknown(ignored)
        serving.log_ignored(ignored)
        exchange = Exchange(
            serving=serving,
            model=model,
            request=generation_request(
                model,
                body,
                plan.constrained(params, model.assets.tokenizer),
                [prompt.token_ids],
                default_max_tokens=None,
                arrived=arrived,
                terms=terms,
            ),
            body=body,
            response_id=response_id(dialect.id_prefix, body, request),
            created=now(),
            headers=ignored_header(ignored),
            bound_tools=plan.bound_tools,
            dialect=dialect,
        )
        return ChatExchange(exchange, prompt, plan)
