"""One prompt of text and its choices: what the dialects other than OpenAI's ask of the engine."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from octavo.core.sampling_params import SamplingParams
from octavo.errors import UserError
from octavo.server.generation import GenerationRequest, Output
from octavo.server.openai.exchange import checked_prompts
from octavo.server.openai.limits import check_num_choices, check_text_len
from octavo.server.openai.structured_outputs import naming_field
from octavo.server.request_ids import new_engine_id
from octavo.server.serving import ServedModel, Serving
from octavo.server.terms import Terms


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A checked request. Nothing has been submitted yet."""

    serving: Serving
    model: ServedModel
    request: GenerationRequest
    form_field: str | None
    """The field that asks for a form, if one does."""

    @property
    def token_ids(self) -> list[int]:
        """The prompt's."""
        return self.request.prompts[0].token_ids

    @property
    def params(self) -> SamplingParams:
        """With `max_tokens` set."""
        return self.request.prompts[0].params

    async def outputs(self, what: str) -> AsyncGenerator[Output, None]:
        """Submit, and pass on what comes. `what` names the request in the log."""
        produced = self.serving.generator(self.model).generate(self.request)
        with self.serving.open_request(self.request, what):
            try:
                async with contextlib.aclosing(produced) as outputs:
                    async for output in outputs:
                        yield output
            except UserError as error:
                raise naming_field(error, self.form_field) from error


async def encoded(
    serving: Serving, model: ServedModel, text: str, *, add_special_tokens: bool = True
) -> list[int]:
    """The token ids of a prompt. Raises ContextLengthError, PromptError."""
    check_text_len(text, model.ready.max_model_len)
    tokenizer = model.assets.tokenizer
    return await serving.off_loop(
        len(text), lambda: tokenizer.encode(text, add_special_tokens=add_special_tokens)
    )


def plain_request(
    serving: Serving,
    model: ServedModel,
    token_ids: list[int],
    params: SamplingParams,
    *,
    default_max_tokens: int | None,
    arrived: float,
    terms: Terms,
    form_field: str | None = None,
) -> PlainRequest:
    """Check everything before it is submitted. Raises InvalidParameterError, PromptError, ContextLengthError."""
    check_num_choices(1, params.n)
    prompts = checked_prompts(model, params, [token_ids], default_max_tokens=default_max_tokens)
    request = GenerationRequest(
        new_engine_id(),
        prompts,
        terms,
        n=params.n,
        wants_kv_usage=False,
        beams=None,
        arrived=arrived,
    )
    return PlainRequest(serving, model, request, form_field)
