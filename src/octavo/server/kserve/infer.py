"""POST /v2/models/{name}/infer: tensors in, tensors out, in JSON or in binary behind it."""

from dataclasses import replace
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from octavo.errors import InvalidParameterError
from octavo.server.disconnect import run_while_connected
from octavo.server.kserve.answer import TensorAnswer
from octavo.server.kserve.names import served
from octavo.server.kserve.requests import HEADER_LENGTH, InferRequest, prepare, read_body
from octavo.server.kserve.signature import INPUT_OF_NAME, OUTPUTS, VERSION, Asked
from octavo.server.kserve.tensors import BinaryData, OutputTensor, Value, read_value
from octavo.server.openai.fields import NO_OTHERS, ignored_header, parse_request
from octavo.server.openapi import json_body
from octavo.server.serving import Serving

_OUTPUT_NAMES = frozenset(spec.name for spec in OUTPUTS)


def infer_routes(serving: Serving) -> APIRouter:
    """The routes, bound to `serving`."""
    router = APIRouter()

    @router.post("/v2/models/{name}/infer", openapi_extra=json_body(InferRequest))
    @router.post("/v2/models/{name}/versions/{version}/infer", include_in_schema=False)
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        """KServe's: continue a text. The model's metadata says which tensors it takes and gives."""
        model = served(serving, name, version)
        fields, rest = await read_body(request, serving.bodies)
        strict = serving.config.strict_requests
        body, ignored = parse_request(InferRequest, fields, NO_OTHERS, strict=strict)
        values = _input_values(body, BinaryData(rest))
        asked = _with_outputs(Asked.of(values), body)
        if asked.stream:
            raise InvalidParameterError(
                "stream is not available here; use generate_stream", parameter="stream", value=True
            )
        sampling_json = values.get("sampling_parameters")
        plain, unknown = await prepare(
            serving,
            model,
            request,
            asked,
            body.parameters or {},
            None if sampling_json is None else str(sampling_json),
        )
        answer = TensorAnswer(plain, asked)
        tensors = await run_while_connected(lambda _: answer.whole(), request.receive)
        head: dict[str, Any] = {"model_name": name, "model_version": VERSION}
        if body.id is not None:
            head["id"] = body.id
        return _response(head, tensors, body, ignored_header(ignored + unknown))

    return router


def _input_values(body: InferRequest, binary: BinaryData) -> dict[str, Value]:
    """The inputs by name. Raises InvalidParameterError."""
    values: dict[str, Value] = {}
    for given in body.inputs:
        name = given.get("name")
        spec = INPUT_OF_NAME.get(name) if isinstance(name, str) else None
        if spec is None:
            raise InvalidParameterError(
                f"inputs must have names among {', '.join(INPUT_OF_NAME)}; given: {str(name)[:80]}",
                parameter="inputs",
                value=name,
            )
        if spec.name in values:
            raise InvalidParameterError(f"the input {spec.name} is there twice", parameter="inputs")
        values[spec.name] = read_value(spec, given, binary)
    binary.check_used()
    if "text_input" not in values:
        raise InvalidParameterError("the input text_input is required", parameter="inputs")
    return values


def _with_outputs(asked: Asked, body: InferRequest) -> Asked:
    """An output that is named is made, also if no input asks for it."""
    named: set[str] = set()
    for output in body.outputs or ():
        name = output.get("name")
        if not isinstance(name, str) or name not in _OUTPUT_NAMES:
            raise InvalidParameterError(
                f"outputs must have names among {', '.join(spec.name for spec in OUTPUTS)}; given: {str(name)[:80]}",
                parameter="outputs",
                value=name,
            )
        parameters = output.get("parameters")
        for refused in ("classification", "shared_memory_region"):
            if isinstance(parameters, dict) and parameters.get(refused):
                raise InvalidParameterError(
                    f"outputs {name}: {refused} is not available", parameter="outputs"
                )
        named.add(name)
    return replace(asked, outputs=asked.outputs | named)


def _response(
    head: dict[str, Any], tensors: list[OutputTensor], body: InferRequest, headers: dict[str, str]
) -> Response:
    """The tensors that were asked for, each in JSON or in binary, as it was asked for."""
    everything_binary = (body.parameters or {}).get("binary_data_output") is True
    wanted = {
        output["name"]: _is_binary(output, default=everything_binary)
        for output in body.outputs or ()
    }
    outputs: list[dict[str, Any]] = []
    binary = bytearray()
    for tensor in tensors:
        if wanted and tensor.name not in wanted:
            continue
        if wanted.get(tensor.name, everything_binary):
            output, data = tensor.as_binary()
            binary += data
        else:
            output = tensor.as_json()
        outputs.append(output)
    data = msgspec.json.encode({**head, "outputs": outputs})
    if not any("parameters" in output for output in outputs):
        return Response(data, headers=headers, media_type="application/json")
    headers = {**headers, HEADER_LENGTH: str(len(data))}
    return Response(data + binary, headers=headers, media_type="application/octet-stream")


def _is_binary(output: dict[str, Any], *, default: bool) -> bool:
    parameters = output.get("parameters")
    value = parameters.get("binary_data") if isinstance(parameters, dict) else None
    return default if value is None else value is True
