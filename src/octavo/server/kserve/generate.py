"""POST /v2/models/{name}/generate and /generate_stream: Triton's simpler form of infer, for text."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import InvalidParameterError
from octavo.server.disconnect import run_while_connected
from octavo.server.kserve.answer import TensorAnswer
from octavo.server.kserve.names import served
from octavo.server.kserve.requests import TritonGenerateRequest, prepare, read_body
from octavo.server.kserve.signature import VERSION, Asked
from octavo.server.kserve.tensors import OutputTensor
from octavo.server.openai.fields import NO_OTHERS, ignored_header, parse_request
from octavo.server.openapi import json_body
from octavo.server.serving import Serving
from octavo.server.streaming import EventStream


def triton_generate_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()
    schema = json_body(TritonGenerateRequest)

    @router.post("/v2/models/{name}/generate", openapi_extra=schema)
    @router.post("/v2/models/{name}/versions/{version}/generate", include_in_schema=False)
    async def generate(request: Request, name: str, version: str | None = None) -> Response:
        """Triton's: continue a text."""
        answer, asked, envelope, headers = await _prepare(serving, request, name, version)
        if asked.stream:
            raise InvalidParameterError(
                "generate gives one response; use generate_stream with stream",
                parameter="stream",
                value=True,
            )
        tensors = await run_while_connected(lambda _: answer.whole(), request.receive)
        data = msgspec.json.encode(_event(envelope, tensors))
        return Response(data, headers=headers, media_type="application/json")

    @router.post("/v2/models/{name}/generate_stream", openapi_extra=schema)
    @router.post("/v2/models/{name}/versions/{version}/generate_stream", include_in_schema=False)
    async def generate_stream(request: Request, name: str, version: str | None = None) -> Response:
        """Triton's: continue a text as a stream, token by token with `stream`, else in one event."""
        answer, asked, envelope, headers = await _prepare(serving, request, name, version)
        return EventStream(_frames(answer, asked, envelope), headers, last=b"")

    return router


async def _prepare(
    serving: Serving, request: Request, name: str, version: str | None
) -> tuple[TensorAnswer, Asked, dict[str, Any], dict[str, str]]:
    """The answer, what was asked for, what stands around each response, and headers."""
    model = served(serving, name, version)
    fields, rest = await read_body(request, serving.bodies)
    if rest:
        raise InvalidParameterError(f"there are {len(rest)} bytes behind the JSON")
    own, others = _split(fields)
    strict = serving.config.strict_requests
    body, _ = parse_request(TritonGenerateRequest, own, NO_OTHERS, strict=strict)
    asked = Asked.of(body.model_dump(exclude_none=True))
    if asked.stream and not asked.exclude_input:
        raise InvalidParameterError(
            "When streaming, `exclude_input_in_output` = False is not allowed.",
            parameter="exclude_input_in_output",
            value=False,
        )
    plain, unknown = await prepare(serving, model, request, asked, others, body.sampling_parameters)
    envelope: dict[str, Any] = {"model_name": name, "model_version": VERSION}
    if body.id is not None:
        envelope["id"] = body.id
    return TensorAnswer(plain, asked), asked, envelope, ignored_header(unknown)


def _split(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request's own fields, and the parameters of the generation. Either may stand in `parameters`, or not."""
    parameters = fields.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidParameterError(
            f"parameters must be an object; given: {str(parameters)[:80]}", parameter="parameters"
        )
    own: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in [*(parameters or {}).items(), *fields.items()]:
        if name == "parameters":
            continue
        (own if name in TritonGenerateRequest.model_fields else others)[name] = value
    return own, others


async def _frames(
    answer: TensorAnswer, asked: Asked, envelope: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    if not asked.stream:
        yield _frame(envelope, await answer.whole())
        return
    async for tensors in answer.parts():
        yield _frame(envelope, tensors)


def _frame(envelope: dict[str, Any], tensors: list[OutputTensor]) -> bytes:
    return b"data: " + msgspec.json.encode(_event(envelope, tensors)) + b"\n\n"


def _event(envelope: dict[str, Any], tensors: list[OutputTensor]) -> dict[str, Any]:
    """One response. A tensor with one element is that element."""
    values = {
        tensor.name: tensor.values[0] if len(tensor.values) == 1 else list(tensor.values)
        for tensor in tensors
    }
    return {**envelope, **values}
