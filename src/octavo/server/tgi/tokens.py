"""Tokens as Text Generation Inference lists them: POST /tokenize with `inputs`, and POST /chat_tokenize."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.http_errors import use_error_shape
from octavo.server.json_body import read_json_object
from octavo.server.openai.chat_prompt import chat_prompt
from octavo.server.openai.fields import ignored_header, parse_request, refuse_unknown
from octavo.server.openai.known_fields import CHAT_FIELDS
from octavo.server.openai.limits import check_text_len
from octavo.server.openai.requests import ChatRequest
from octavo.server.openapi import json_body
from octavo.server.serving import ServedModel, Serving
from octavo.server.tgi.errors import TGI_ERRORS
from octavo.server.tgi.requests import GENERATE_FIELDS, GenerateRequest


def chat_tokenize_routes(serving: Serving) -> APIRouter:
    """The route, bound to `serving`."""
    router = APIRouter()

    @router.post("/chat_tokenize", openapi_extra=json_body(ChatRequest))
    async def chat_tokenize(request: Request) -> Response:
        """Text Generation Inference's: a conversation as its template renders it, and the tokens of that."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        strict = serving.config.strict_requests
        body, ignored = parse_request(ChatRequest, fields, CHAT_FIELDS, strict=strict)
        model.check_name(body.model)
        prompt = await chat_prompt(
            serving, model, body, add_special_tokens=bool(body.add_special_tokens), may_call=True
        )
        if strict:
            refuse_unknown(prompt.ignored_fields)
        ignored += prompt.ignored_fields
        serving.log_ignored(ignored)
        tokens = await _tokens(
            serving, model, prompt.text, add_special_tokens=bool(body.add_special_tokens)
        )
        answer = {"tokenize_response": tokens, "templated_text": prompt.text}
        return _json(answer, ignored)

    return router


async def tokenize_inputs(
    serving: Serving, model: ServedModel, fields: dict[str, Any], request: Request
) -> Response:
    """The tokens of `inputs`, for the route that vLLM's shape of the same request shares."""
    use_error_shape(request.scope, TGI_ERRORS)
    strict = serving.config.strict_requests
    body, ignored = parse_request(GenerateRequest, fields, GENERATE_FIELDS, strict=strict)
    serving.log_ignored(ignored)
    check_text_len(body.inputs, model.ready.max_model_len)
    adds = body.add_special_tokens is not False
    return _json(await _tokens(serving, model, body.inputs, add_special_tokens=adds), ignored)


async def _tokens(
    serving: Serving, model: ServedModel, text: str, *, add_special_tokens: bool
) -> list[dict[str, Any]]:
    tokenizer = model.assets.tokenizer

    def tokens() -> list[dict[str, Any]]:
        return [
            {"id": i, "text": text[start:stop], "start": start, "stop": stop}
            for i, start, stop in tokenizer.encode_spans(text, add_special_tokens)
        ]

    return await serving.off_loop(len(text), tokens)


def _json(value: object, ignored: list[str]) -> Response:
    data = msgspec.json.encode(value)
    return Response(data, headers=ignored_header(ignored), media_type="application/json")
