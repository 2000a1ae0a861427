"""The bodies of KServe's infer and of Triton's generate, and the one request that both come to."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from octavo.errors import InvalidParameterError
from octavo.server.generation import arrival_time
from octavo.server.json_body import BodyMemory, parse_json_object, read_json_and_rest
from octavo.server.kserve.parameters import (
    DEFAULT_MAX_TOKENS,
    PARAMETER_FIELDS,
    GenerateParameters,
    asked_terms,
    form_field,
    from_text,
    sampling_params,
)
from octavo.server.kserve.signature import Asked
from octavo.server.openai.fields import RequestBody, parse_request
from octavo.server.plain_request import PlainRequest, encoded, plain_request
from octavo.server.serving import ServedModel, Serving

HEADER_LENGTH = "inference-header-content-length"
_MAX_TENSORS = 64


class InferRequest(RequestBody):
    """POST /v2/models/{name}/infer. Which inputs there are: the model's metadata."""

    id: Annotated[str, Field(max_length=256)] | None = None
    parameters: dict[str, Any] | None = None
    """`GenerateParameters`, and `binary_data_output`."""
    inputs: Annotated[list[dict[str, Any]], Field(max_length=_MAX_TENSORS)]
    outputs: Annotated[list[dict[str, Any]], Field(max_length=_MAX_TENSORS)] | None = None


class TritonGenerateRequest(RequestBody):
    """POST /v2/models/{name}/generate and /generate_stream. Other fields are `GenerateParameters`, as are those in `parameters`."""

    text_input: str
    id: Annotated[str, Field(max_length=256)] | None = None
    parameters: dict[str, Any] | None = None
    stream: bool | None = None
    """Answer token by token; only of /generate_stream."""
    sampling_parameters: str | None = None
    """`GenerateParameters` as JSON, instead of the others."""
    exclude_input_in_output: bool | None = None
    """Null: only of a stream."""
    return_finish_reason: bool | None = None
    return_cumulative_logprob: bool | None = None
    return_logprobs: bool | None = None
    return_num_input_tokens: bool | None = None
    return_num_output_tokens: bool | None = None


async def read_body(request: Request, bodies: BodyMemory) -> tuple[dict[str, Any], bytes]:
    """The JSON of a body and the binary data behind it. Raises HttpError, InvalidParameterError."""
    length = request.headers.get(HEADER_LENGTH)
    if length is not None and not (length.isascii() and length.isdecimal()):
        raise InvalidParameterError(
            f"{HEADER_LENGTH} must be a number of bytes; given: {length[:40]}"
        )
    num_bytes = None if length is None else int(length[:20])
    return await read_json_and_rest(request, bodies, num_bytes)


async def prepare(
    serving: Serving,
    model: ServedModel,
    http_request: Request,
    asked: Asked,
    parameters: dict[str, Any],
    sampling_json: str | None,
) -> tuple[PlainRequest, list[str]]:
    """What the engine is to do, and the parameters that nobody knows. `sampling_json` takes the place of the others.

    Raises InvalidParameterError, UnsupportedParameterError, PromptError, ContextLengthError.
    """
    arrived = arrival_time()
    if sampling_json is not None:
        parameters = parse_json_object(sampling_json.encode("utf-8"), "sampling_parameters")
    given, ignored = parse_request(
        GenerateParameters,
        from_text(parameters),
        PARAMETER_FIELDS,
        strict=serving.config.strict_requests,
    )
    params = sampling_params(
        given, model.assets.sampling_defaults, wants_logprobs=asked.wants_logprobs
    )
    serving.log_ignored(ignored)
    plain = plain_request(
        serving,
        model,
        await encoded(serving, model, asked.text_input),
        params,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        arrived=arrived,
        terms=serving.terms(http_request, arrived, asked_terms(given)),
        form_field=form_field(given),
    )
    return plain, ignored
