"""One request for text and its answer: what completions and chat share from the body's arrival to the last byte."""

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams
from octavo.errors import UserError
from octavo.server.best_of import best_of
from octavo.server.disconnect import run_while_connected
from octavo.server.generation import GenerationRequest, Output, Prompt
from octavo.server.openai.beams import beam_search_params
from octavo.server.openai.dialect import CHAT, Dialect
from octavo.server.openai.limits import check_listed_ids, check_logprobs
from octavo.server.openai.logprobs import TokenNames
from octavo.server.openai.prompts import check_not_empty
from octavo.server.openai.requests import GenerationBody
from octavo.server.openai.sampling import max_tokens_in_context
from octavo.server.openai.structured_outputs import about_tools, form_field, naming_field
from octavo.server.request_ids import new_engine_id, request_id_of
from octavo.server.serving import ServedModel, Serving
from octavo.server.streaming import DONE, EventStream
from octavo.server.terms import Terms
from octavo.text.answer.tools import Tool
from octavo.text.bad_words import with_bad_words


@dataclass(frozen=True, slots=True)
class Exchange:
    """A checked request. Nothing has been submitted yet."""

    serving: Serving
    model: ServedModel
    request: GenerationRequest
    body: GenerationBody
    response_id: str
    created: int
    headers: Mapping[str, str]
    bound_tools: Sequence[Tool] = ()
    """Those whose schemas are part of the grammar."""
    dialect: Dialect = CHAT
    """In whose words errors are told."""

    @property
    def names(self) -> TokenNames:
        """How this request wants tokens written in logprobs."""
        return TokenNames(
            self.model.assets.tokenizer, as_token_ids=bool(self.body.return_tokens_as_token_ids)
        )

    @property
    def includes_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        options = self.body.stream_options
        return options is not None and options.include_usage is not False

    @property
    def includes_continuous_usage(self) -> bool:
        """Whether every chunk carries the usage so far."""
        options = self.body.stream_options
        return self.includes_usage and options is not None and bool(options.continuous_usage_stats)

    def envelope(self, object_name: str) -> dict[str, Any]:
        """What stands around the choices of a response or chunk."""
        return {
            "id": self.response_id,
            "object": object_name,
            "created": self.created,
            "model": self.model.names[0],
            "system_fingerprint": self.model.fingerprint,
        }

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Submit, and pass on what comes."""
        request = self.request
        if request.beams is not None:
            produced = self.serving.beam_generator(self.model).generate(request, request.beams)
        else:
            produced = self.serving.generator(self.model).generate(request)
        if request.num_samples > request.n:
            produced = best_of(produced, request.n, request.num_samples)
        with self.serving.open_request(request, type(self.body).__name__):
            try:
                async with contextlib.aclosing(produced) as outputs:
                    async for output in outputs:
                        yield output
            except UserError as error:
                raise await self._told(error) from error

    async def _told(self, error: UserError) -> UserError:
        """What the engine refused the request with, in the request's own words."""
        if not self.bound_tools:
            return self.dialect.told(naming_field(error, form_field(self.body)))
        return await self.serving.in_thread(lambda: about_tools(error, self.bound_tools))


class Answer(Protocol):
    """The two forms of the answer to an `Exchange`. One of them is used, once."""

    async def whole(self) -> bytes:
        """The JSON body."""
        ...

    def frames(self) -> AsyncGenerator[bytes, None]:
        """The events of the stream, without its last `[DONE]`."""
        ...


async def send(
    exchange: Exchange, answer: Answer, http_request: Request, *, last: bytes = DONE
) -> Response:
    """Make the answer in the form that was asked for, for as long as the client is there. `last` ends a stream."""
    if exchange.body.stream:
        return EventStream(answer.frames(), exchange.headers, last=last)
    data = await run_while_connected(lambda _: answer.whole(), http_request.receive)
    return Response(data, headers=dict(exchange.headers), media_type="application/json")


def generation_request(
    model: ServedModel,
    body: GenerationBody,
    params: SamplingParams,
    token_ids: Sequence[list[int]],
    *,
    default_max_tokens: int | None,
    arrived: float,
    terms: Terms,
) -> GenerationRequest:
    """Check everything about every prompt before any is submitted.

    Raises InvalidParameterError, PromptError, ContextLengthError.
    """
    prompts = checked_prompts(model, params, token_ids, default_max_tokens=default_max_tokens)
    longest = max(prompt.params.max_tokens or 1 for prompt in prompts)
    return GenerationRequest(
        new_engine_id(),
        prompts,
        terms,
        n=1 if body.n is None else body.n,
        wants_kv_usage=bool(body.return_kv_usage),
        beams=beam_search_params(body, longest),
        arrived=arrived,
    )


def checked_prompts(
    model: ServedModel,
    params: SamplingParams,
    token_ids: Sequence[list[int]],
    *,
    default_max_tokens: int | None,
) -> list[Prompt]:
    """The prompts, ready to submit. Raises InvalidParameterError, PromptError, ContextLengthError."""
    ready = model.ready
    model.check_generates()
    params.verify(vocab_size=ready.vocab_size, max_logprobs=ready.max_logprobs)
    params = with_bad_words(params, model.assets.tokenizer)
    check_listed_ids(params, len(token_ids))
    prompts = _fitted(params, token_ids, ready.max_model_len, default_max_tokens)
    check_logprobs(
        params,
        sum(map(len, token_ids)),
        params.n * sum(prompt.params.max_tokens or 0 for prompt in prompts),
        ready.vocab_size,
    )
    return prompts


def _fitted(
    params: SamplingParams,
    token_ids: Sequence[list[int]],
    max_model_len: int,
    default_max_tokens: int | None,
) -> list[Prompt]:
    """The prompts, each with the most tokens that it may generate."""
    prompts: list[Prompt] = []
    fitted: dict[int, SamplingParams] = {}
    for position, ids in enumerate(token_ids):
        check_not_empty(ids, position if len(token_ids) > 1 else None)
        max_tokens = max_tokens_in_context(
            params.max_tokens, len(ids), max_model_len, default_max_tokens
        )
        if max_tokens not in fitted:  # making one walks all its lists
            fitted[max_tokens] = replace(params, max_tokens=max_tokens)
        prompts.append(Prompt(ids, fitted[max_tokens]))
    return prompts


def response_id(prefix: str, body: GenerationBody, http_request: Request) -> str:
    """The id of the response: the request's own, where it has one."""
    return f"{prefix}-{body.request_id or request_id_of(http_request)}"


def now() -> int:
    """`created`: seconds since 1970."""
    return int(time.time())
