"""POST /tokenize and /detokenize."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.json_body import read_json_object
from octavo.server.openai.chat_prompt import chat_prompt
from octavo.server.openai.fields import ignored_header, parse_request, refuse_unknown
from octavo.server.openai.known_fields import TOKENIZE_FIELDS
from octavo.server.openai.prompts import check_token_ids
from octavo.server.openai.requests import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from octavo.server.openapi import json_body
from octavo.server.plain_request import encoded
from octavo.server.serving import ServedModel, Serving
from octavo.server.tgi.requests import GenerateRequest
from octavo.server.tgi.tokens import tokenize_inputs


def tokenize_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.post(
        "/tokenize",
        openapi_extra=json_body(TokenizeCompletionRequest, TokenizeChatRequest, GenerateRequest),
    )
    async def tokenize(request: Request) -> Response:
        """The tokens of a prompt, or of a conversation as its template renders it; `inputs` is TGI's form of it."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        if "inputs" in fields and "prompt" not in fields:
            return await tokenize_inputs(serving, model, fields, request)
        if "messages" in fields:
            return await _tokenize_chat(serving, model, fields)
        return await _tokenize_prompt(serving, model, fields)

    @router.post("/detokenize", openapi_extra=json_body(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        """The text of some tokens."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        body, ignored = parse_request(
            DetokenizeRequest, fields, TOKENIZE_FIELDS, strict=serving.config.strict_requests
        )
        model.check_name(body.model)
        serving.log_ignored(ignored)
        tokenizer = model.assets.tokenizer

        def decode() -> bytes:
            ids = check_token_ids(body.tokens, tokenizer.vocab_size, "tokens")
            text = tokenizer.decode(ids, skip_special_tokens=False)
            return msgspec.json.encode({"prompt": text})

        size = len(body.tokens) if isinstance(body.tokens, list) else 0
        return _json(await serving.off_loop(size, decode), ignored)

    return router


async def _tokenize_chat(serving: Serving, model: ServedModel, fields: dict[str, Any]) -> Response:
    strict = serving.config.strict_requests
    body, ignored = parse_request(TokenizeChatRequest, fields, TOKENIZE_FIELDS, strict=strict)
    model.check_name(body.model)
    prompt = await chat_prompt(
        serving, model, body, add_special_tokens=bool(body.add_special_tokens), may_call=True
    )
    if strict:
        refuse_unknown(prompt.ignored_fields)
    ignored += prompt.ignored_fields
    serving.log_ignored(ignored)
    return await _tokens_response(serving, model, body, prompt.token_ids, ignored)


async def _tokenize_prompt(
    serving: Serving, model: ServedModel, fields: dict[str, Any]
) -> Response:
    strict = serving.config.strict_requests
    body, ignored = parse_request(TokenizeCompletionRequest, fields, TOKENIZE_FIELDS, strict=strict)
    model.check_name(body.model)
    serving.log_ignored(ignored)
    adds = body.add_special_tokens is not False
    token_ids = await encoded(serving, model, body.prompt, add_special_tokens=adds)
    return await _tokens_response(serving, model, body, token_ids, ignored)


async def _tokens_response(
    serving: Serving,
    model: ServedModel,
    body: TokenizeChatRequest | TokenizeCompletionRequest,
    token_ids: list[int],
    ignored: list[str],
) -> Response:
    def encode() -> bytes:
        tokenizer, wants_strings = model.assets.tokenizer, body.return_token_strs
        return msgspec.json.encode(
            {
                "count": len(token_ids),
                "max_model_len": model.ready.max_model_len,
                "tokens": token_ids,
                "token_strs": [tokenizer.token_text(i) for i in token_ids]
                if wants_strings
                else None,
            }
        )

    return _json(await serving.off_loop(len(token_ids), encode), ignored)


def _json(body: bytes, ignored: list[str]) -> Response:
    return Response(body, headers=ignored_header(ignored), media_type="application/json")
