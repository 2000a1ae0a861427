"""POST /v1/embeddings."""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.core.pooling import Pooling
from octavo.errors import ContextLengthError, InvalidParameterError
from octavo.server.disconnect import run_while_connected
from octavo.server.embedder import Embedder
from octavo.server.generation import arrival_time
from octavo.server.json_body import read_json_object
from octavo.server.openai.embeddings.request import EMBEDDINGS_FIELDS, EmbeddingsRequest
from octavo.server.openai.embeddings.vectors import Vector, check_dimensions, finished
from octavo.server.openai.exchange import now
from octavo.server.openai.fields import ignored_header, parse_request
from octavo.server.openai.limits import check_text_len
from octavo.server.openai.prompts import check_not_empty, check_token_ids, parse_prompts
from octavo.server.openapi import json_body
from octavo.server.request_ids import new_engine_id, request_id_of
from octavo.server.serving import ServedModel, Serving


def embeddings_routes(serving: Serving) -> APIRouter:
    """The route, bound to `serving`."""
    router = APIRouter()

    @router.post("/v1/embeddings", openapi_extra=json_body(EmbeddingsRequest))
    async def create_embeddings(request: Request) -> Response:
        """The vectors of one or many texts."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        arrived = arrival_time()
        body, ignored = parse_request(
            EmbeddingsRequest, fields, EMBEDDINGS_FIELDS, strict=serving.config.strict_requests
        )
        model.check_name(body.model)
        serving.log_ignored(ignored)
        terms = serving.terms(request, arrived, body)
        check_dimensions(body.dimensions, model.ready.hidden_size)
        pooling = _pooling(model, body)
        prompts = await _token_ids(serving, model, body)
        embedder = Embedder(serving.client)
        with serving.open_embedding():
            vectors = await run_while_connected(
                lambda _: embedder.embed(new_engine_id(), prompts, pooling, terms),
                request.receive,
            )
        answer = _answer(model, body, request, vectors, sum(map(len, prompts)))
        size = len(vectors) * model.ready.hidden_size
        data = await serving.off_loop(size, answer)
        return Response(data, headers=ignored_header(ignored), media_type="application/json")

    return router


def _pooling(model: ServedModel, body: EmbeddingsRequest) -> Pooling:
    if not model.ready.is_encoder:
        return Pooling(body.pooling or Pooling.LAST)
    if body.pooling is not None:
        raise InvalidParameterError(
            "pooling is for models that generate: this encoder has a way of its own",
            parameter="pooling",
            value=body.pooling,
        )
    return Pooling.MODEL


async def _token_ids(
    serving: Serving, model: ServedModel, body: EmbeddingsRequest
) -> list[list[int]]:
    """The texts as tokens, each of a length that fits. Raises UserError."""
    given = parse_prompts(
        body.input, max_prompts=serving.config.max_prompts_per_request, n=1, name="input"
    )
    tokenizer, ready = model.assets.tokenizer, model.ready

    def ids_of(text: str | list[int]) -> list[int]:
        if not isinstance(text, str):
            return check_token_ids(text, ready.vocab_size, "input")
        check_text_len(text, ready.max_model_len)
        return tokenizer.encode(text, add_special_tokens=body.add_special_tokens is not False)

    def all_ids() -> list[list[int]]:
        return [_fitted(ids_of(text), position, model, body) for position, text in enumerate(given)]

    return await serving.off_loop(sum(len(text) for text in given), all_ids)


def _fitted(
    ids: list[int], position: int, model: ServedModel, body: EmbeddingsRequest
) -> list[int]:
    check_not_empty(ids, position, "input")
    limit = model.longest_text
    wanted = body.truncate_prompt_tokens
    if wanted is not None:
        most = limit if wanted == -1 else wanted
        if not 1 <= most <= limit:
            raise InvalidParameterError(
                f"truncate_prompt_tokens must be -1 or from 1 to {limit}; given: {wanted}",
                parameter="truncate_prompt_tokens",
                value=wanted,
            )
        if len(ids) > most:
            return _cut(ids, most, model, body)
    if len(ids) > limit:
        raise ContextLengthError(
            f"This model's maximum context length is {limit} tokens. However, input {position} has {len(ids)} tokens. "
            "Please reduce its length, or set truncate_prompt_tokens.",
            parameter="input",
            value=len(ids),
        )
    return ids


def _cut(ids: list[int], most: int, model: ServedModel, body: EmbeddingsRequest) -> list[int]:
    """The tokens that are left. What an encoder puts around a text stays around it."""
    is_left = body.truncation_side == "left"
    special = model.assets.tokenizer.special_ids
    first = ids[:1] if model.ready.is_encoder and ids[0] in special else []
    last = ids[-1:] if model.ready.is_encoder and ids[-1] in special else []
    inner = ids[len(first) : len(ids) - len(last)]
    room = max(0, most - len(first) - len(last))
    kept = inner[len(inner) - room :] if is_left else inner[:room]
    return [*first, *kept, *last][:most]


def _answer(
    model: ServedModel,
    body: EmbeddingsRequest,
    request: Request,
    vectors: list[Vector],
    num_tokens: int,
) -> Callable[[], bytes]:
    def encode() -> bytes:
        data: list[dict[str, Any]] = [
            {"index": i, "object": "embedding", "embedding": finished(vector, body)}
            for i, vector in enumerate(vectors)
        ]
        return msgspec.json.encode(
            {
                "id": f"embd-{body.request_id or request_id_of(request)}",
                "object": "list",
                "created": now(),
                "model": model.names[0],
                "data": data,
                "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
            }
        )

    return encode
