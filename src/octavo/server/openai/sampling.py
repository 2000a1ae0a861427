"""Request fields -> `SamplingParams`. Precedence: the request, then the model's generation config, then built-in.

The generation config never sets `max_tokens`: a default that cuts answers short would do so in silence.
"""

from collections.abc import Mapping
from typing import Any

from octavo.core.sampling_params import GREEDY_TEMPERATURE, SamplingParams
from octavo.errors import (
    ContextLengthError,
    InvalidParameterError,
    UnsupportedParameterError,
)
from octavo.server.openai.common_fields import SamplingFields
from octavo.server.openai.limits import MAX_STOPS, check_words_len
from octavo.server.openai.requests import ChatRequest, CompletionRequest, GenerationBody
from octavo.server.openai.structured_outputs import structured_outputs

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for completions; chat runs to the end of the context."""


def completion_params(
    body: CompletionRequest, defaults: Mapping[str, float | int]
) -> SamplingParams:
    """Parameters of a completion. `max_tokens` is None where the request leaves it open.

    Raises InvalidParameterError, UnsupportedParameterError.
    """
    values = _common(body, defaults)
    values["logprobs"] = body.logprobs
    values["max_tokens"] = body.max_tokens
    _sample_best_of(body, values)
    if body.echo:
        if body.max_tokens == 0:
            values["max_tokens"] = (
                1  # computed and dropped: the prompt's logprobs need a step anyway
            )
        if body.logprobs is not None and body.prompt_logprobs is None:
            values["prompt_logprobs"] = body.logprobs
    return SamplingParams(**values)


def chat_params(body: ChatRequest, defaults: Mapping[str, float | int]) -> SamplingParams:
    """Parameters of a chat completion. `max_tokens` is None where the request leaves it open.

    Raises InvalidParameterError, UnsupportedParameterError.
    """
    values = _common(body, defaults)
    given = body.max_completion_tokens
    values["max_tokens"] = body.max_tokens if given is None else given
    if body.logprobs:
        values["logprobs"] = body.top_logprobs or 0
    elif body.top_logprobs:
        raise InvalidParameterError(
            "top_logprobs needs logprobs to be true",
            parameter="top_logprobs",
            value=body.top_logprobs,
        )
    _sample_best_of(body, values)
    return SamplingParams(**values)


def max_tokens_in_context(
    wanted: int | None, num_prompt_tokens: int, max_model_len: int, default: int | None
) -> int:
    """The `max_tokens` of a prompt: what was asked for, else `default` or what is left of the context.

    Raises ContextLengthError if the prompt leaves no room, or if more was asked for than is left.
    """
    room = max_model_len - num_prompt_tokens
    if room < 1 or (wanted is not None and wanted > room):
        completion = wanted if wanted is not None else 1
        raise ContextLengthError(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested "
            f"{num_prompt_tokens + completion} tokens ({num_prompt_tokens} in the messages, "
            f"{completion} in the completion). Please reduce the length of the messages or completion.",
            parameter="max_tokens" if room >= 1 else None,
            value=wanted,
        )
    if wanted is not None:
        return wanted
    return room if default is None else min(default, room)


def sampling_values(given: SamplingFields, defaults: Mapping[str, float | int]) -> dict[str, Any]:
    """The values of `SamplingParams` that stand in these fields, over `defaults`. Raises InvalidParameterError."""
    values: dict[str, Any] = dict(defaults)
    for name in SamplingFields.model_fields:
        value = getattr(given, name)
        if value is not None:
            values[name] = value
    values["stop"] = stop_strings(given.stop)
    check_words_len("bad_words", given.bad_words or ())
    return values


def _common(body: GenerationBody, defaults: Mapping[str, float | int]) -> dict[str, Any]:
    _check_options(body)
    values = sampling_values(body, defaults)
    values["prompt_logprobs"] = body.prompt_logprobs
    if body.use_beam_search:
        values["n"] = 1  # `n` is the number of beams, each of which asks for itself
    elif body.n is not None:
        values["n"] = body.n
    values["structured_outputs"] = structured_outputs(body)
    return values


def _sample_best_of(body: GenerationBody, values: dict[str, Any]) -> None:
    """Let more samples be made than are returned; which are the best is told by their log-probabilities."""
    if body.best_of is None or body.best_of == values.get("n", 1):
        return
    values["n"] = body.best_of
    if values.get("temperature", 1.0) < GREEDY_TEMPERATURE:
        raise InvalidParameterError(
            f"best_of must be 1 with greedy sampling (temperature 0); given: {body.best_of}",
            parameter="best_of",
            value=body.best_of,
        )
    if values.get("logprobs") is None:
        values["logprobs"] = 0


def stop_strings(stop: object) -> tuple[str, ...]:
    """`stop` of a request: one string or several. Raises InvalidParameterError."""
    if stop is None:
        return ()
    if isinstance(stop, str):
        stop = [stop]
    if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
        raise InvalidParameterError(
            "stop must be a string or a list of strings", parameter="stop", value=stop
        )
    if len(stop) > MAX_STOPS:
        raise InvalidParameterError(
            f"stop may hold at most {MAX_STOPS} strings; given: {len(stop)}",
            parameter="stop",
            value=len(stop),
        )
    check_words_len("stop", stop)
    return tuple(stop)


def _check_options(body: GenerationBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise InvalidParameterError(
            "stream_options is only taken with stream=true", parameter="stream_options"
        )
    if body.stream and body.prompt_logprobs is not None:
        raise UnsupportedParameterError(
            "prompt_logprobs is not supported with stream=true", parameter="prompt_logprobs"
        )
    n = 1 if body.n is None else body.n
    if body.best_of is not None and body.best_of > n and body.stream:
        raise InvalidParameterError(
            f"best_of above n cannot be streamed: the best are known at the end; given: best_of {body.best_of}, n {n}",
            parameter="best_of",
            value=body.best_of,
        )
    if body.best_of is not None and body.best_of < n:
        raise InvalidParameterError(
            f"best_of must be at least n ({n}); given: {body.best_of}",
            parameter="best_of",
            value=body.best_of,
        )
