"""POST /v1/completions."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.server.generation import GenerationRequest, arrival_time
from octavo.server.json_body import read_json_object
from octavo.server.openai.completion_answer import CompletionAnswer
from octavo.server.openai.exchange import Exchange, generation_request, now, response_id, send
from octavo.server.openai.fields import ignored_header, parse_request
from octavo.server.openai.known_fields import COMPLETION_FIELDS
from octavo.server.openai.limits import check_text_len
from octavo.server.openai.prompts import check_token_ids, parse_prompts
from octavo.server.openai.requests import CompletionRequest
from octavo.server.openai.sampling import COMPLETION_MAX_TOKENS, completion_params
from octavo.server.openapi import json_body
from octavo.server.serving import ServedModel, Serving
from octavo.server.terms import Terms


def completion_routes(serving: Serving) -> APIRouter:
    """The route, bound to `serving`."""
    router = APIRouter()

    @router.post("/v1/completions", openapi_extra=json_body(CompletionRequest))
    async def create_completion(request: Request) -> Response:
        """Continue one or many prompts."""
        model = serving.model()
        fields = await read_json_object(request, serving.bodies)
        arrived = arrival_time()
        body, ignored = parse_request(
            CompletionRequest, fields, COMPLETION_FIELDS, strict=serving.config.strict_requests
        )
        model.check_name(body.model)
        serving.log_ignored(ignored)
        terms = serving.terms(request, arrived, body)
        prepared = await _prepare(serving, model, body, arrived, terms)
        exchange = Exchange(
            serving=serving,
            model=model,
            request=prepared,
            body=body,
            response_id=response_id("cmpl", body, request),
            created=now(),
            headers=ignored_header(ignored),
        )
        echoes = await _echoes(serving, model, body, prepared) if body.echo else None
        return await send(exchange, CompletionAnswer(exchange, body, echoes), request)

    return router


async def _prepare(
    serving: Serving,
    model: ServedModel,
    body: CompletionRequest,
    arrived: float,
    terms: Terms,
) -> GenerationRequest:
    params = completion_params(body, model.assets.sampling_defaults)
    prompts = parse_prompts(
        body.prompt, max_prompts=serving.config.max_prompts_per_request, n=params.n
    )
    token_ids = await _token_ids(serving, model, body, prompts)
    return generation_request(
        model,
        body,
        params,
        token_ids,
        default_max_tokens=COMPLETION_MAX_TOKENS,
        arrived=arrived,
        terms=terms,
    )


async def _token_ids(
    serving: Serving, model: ServedModel, body: CompletionRequest, prompts: list[str | list[int]]
) -> list[list[int]]:
    tokenizer, vocab_size = model.assets.tokenizer, model.ready.vocab_size
    adds_special_tokens = body.add_special_tokens is not False

    def ids_of(prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            check_text_len(prompt, model.ready.max_model_len)
            return tokenizer.encode(prompt, add_special_tokens=adds_special_tokens)
        return check_token_ids(prompt, vocab_size, "prompt")

    size = sum(len(prompt) for prompt in prompts)
    return await serving.off_loop(size, lambda: [ids_of(prompt) for prompt in prompts])


async def _echoes(
    serving: Serving, model: ServedModel, body: CompletionRequest, request: GenerationRequest
) -> list[str]:
    """The prompts as text: as they were sent, or decoded if they were sent as ids."""
    if isinstance(body.prompt, str):
        return [body.prompt]
    if isinstance(body.prompt[0], str):
        return list(body.prompt)
    skips = body.skip_special_tokens is not False
    tokenizer = model.assets.tokenizer

    def decode_all() -> list[str]:
        return [tokenizer.decode(p.token_ids, skip_special_tokens=skips) for p in request.prompts]

    return await serving.off_loop(request.num_prompt_tokens, decode_all)
