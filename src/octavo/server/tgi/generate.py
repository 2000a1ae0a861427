"""POST /generate, /generate_stream and /: text in, text out, as Text Generation Inference does it."""

import time

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.disconnect import run_while_connected
from octavo.server.generation import arrival_time
from octavo.server.http_errors import use_error_shape
from octavo.server.json_body import read_json_object
from octavo.server.openai.fields import ignored_header, parse_request
from octavo.server.openapi import json_body
from octavo.server.plain_request import encoded, plain_request
from octavo.server.serving import ServedModel, Serving
from octavo.server.streaming import EventStream
from octavo.server.tgi.answer import TgiAnswer
from octavo.server.tgi.errors import TGI_ERRORS
from octavo.server.tgi.requests import GENERATE_FIELDS, GenerateRequest
from octavo.server.tgi.validation import FORM_FIELD, check_lengths, validate

_COMPUTE_TYPE = {"x-compute-type": "cpu"}


def generate_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()
    schema = json_body(GenerateRequest)

    @router.post("/generate", openapi_extra=schema)
    async def generate(request: Request) -> Response:
        """Text Generation Inference's: continue a text."""
        return await _Exchange(serving, request).whole(as_list=False)

    @router.post("/generate_stream", openapi_extra=schema)
    async def generate_stream(request: Request) -> Response:
        """Text Generation Inference's: continue a text, as a stream of tokens."""
        return await _Exchange(serving, request).stream()

    @router.post("/", openapi_extra=schema)
    async def compat_generate(request: Request) -> Response:
        """Text Generation Inference's: /generate_stream with `stream`, else /generate with its answer in a list."""
        use_error_shape(request.scope, TGI_ERRORS)
        exchange = _Exchange(serving, request)
        body = await exchange.read()
        return await (exchange.stream() if body.stream else exchange.whole(as_list=True))

    return router


class _Exchange:
    """One request from its arrival to its answer."""

    def __init__(self, serving: Serving, http_request: Request) -> None:
        self._serving = serving
        self._http_request = http_request
        self._model: ServedModel = serving.model()
        self._arrived = arrival_time()
        self._body: GenerateRequest | None = None
        self._headers: dict[str, str] = {}

    async def read(self) -> GenerateRequest:
        """The body, checked for the types of its fields."""
        if self._body is None:
            fields = await read_json_object(self._http_request, self._serving.bodies)
            self._arrived = arrival_time()
            strict = self._serving.config.strict_requests
            body, ignored = parse_request(GenerateRequest, fields, GENERATE_FIELDS, strict=strict)
            self._serving.log_ignored(ignored)
            self._body, self._headers = body, ignored_header(ignored)
        return self._body

    async def whole(self, *, as_list: bool) -> Response:
        """The answer as one JSON body."""
        body = await self.read()
        answer, num_prompt_tokens = await self._prepare(body, streams=False)
        submitted = time.perf_counter()
        result = await run_while_connected(lambda _: answer.whole(), self._http_request.receive)
        headers = {
            **self._headers,
            **_COMPUTE_TYPE,
            **_timings(self._arrived, submitted, answer.num_tokens),
            "x-compute-characters": str(len(body.inputs)),
            "x-prompt-tokens": str(num_prompt_tokens),
            "x-generated-tokens": str(answer.num_tokens),
        }
        data = msgspec.json.encode([result] if as_list else result)
        return Response(data, headers=headers, media_type="application/json")

    async def stream(self) -> Response:
        """The answer as events. TGI's streams end without a mark."""
        body = await self.read()
        answer, _ = await self._prepare(body, streams=True)
        characters = {"x-compute-characters": str(len(body.inputs))}
        headers = {**self._headers, **_COMPUTE_TYPE, **characters}
        return EventStream(answer.frames(), headers, last=b"")

    async def _prepare(self, body: GenerateRequest, *, streams: bool) -> tuple[TgiAnswer, int]:
        max_total_tokens = self._model.ready.max_model_len
        asked = validate(body, streams=streams, max_input_tokens=max_total_tokens - 1)
        token_ids = await encoded(
            self._serving,
            self._model,
            body.inputs,
            add_special_tokens=body.add_special_tokens is not False,
        )
        if asked.truncate is not None:
            token_ids = token_ids[-asked.truncate :]
        check_lengths(len(token_ids), asked.params.max_tokens, max_total_tokens)
        plain = plain_request(
            self._serving,
            self._model,
            token_ids,
            asked.params,
            default_max_tokens=None,
            arrived=self._arrived,
            terms=self._serving.terms(self._http_request, self._arrived),
            form_field=FORM_FIELD,
        )
        return TgiAnswer(plain, asked, body.inputs), len(token_ids)


def _timings(arrived: float, submitted: float, num_tokens: int) -> dict[str, str]:
    """Milliseconds, but the compute time in seconds. Waiting in the queue is part of the inference."""
    now = time.perf_counter()
    inference_s = now - submitted
    per_token_s = inference_s / max(1, num_tokens)
    return {
        "x-compute-time": f"{now - arrived:.6f}",
        "x-total-time": f"{1e3 * (now - arrived):.0f}",
        "x-validation-time": f"{1e3 * (submitted - arrived):.0f}",
        "x-inference-time": f"{1e3 * inference_s:.0f}",
        "x-time-per-token": f"{1e3 * per_token_s:.0f}",
    }
