"""The parameters of a generation as Triton's vLLM backend takes them: the fields of `SamplingParams`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from octavo.core.sampling_params import INT64_MAX, SamplingParams
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError
from octavo.server.json_body import parse_json_object
from octavo.server.openai.common_fields import SamplingFields, TermsFields
from octavo.server.openai.fields import Int, KnownFields, Refused
from octavo.server.openai.sampling import sampling_values
from octavo.server.openai.structured_outputs import form_of, vllm_options

DEFAULT_MAX_TOKENS = 16
"""vLLM's own default, which Triton's backend leaves as it is."""


OptionsInput = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]})]


class GenerateParameters(SamplingFields):
    """How to generate."""

    n: Int | None = None
    max_tokens: Int | None = None
    logprobs: Int | None = None
    """Reported with `return_logprobs`."""
    structured_outputs: OptionsInput = None
    """One of json, regex, choice, grammar and json_object, as in vLLM; an object, or its JSON as text."""
    guided_decoding: OptionsInput = None
    """Its older name."""

    priority: Annotated[Int, Field(ge=0, le=2**31 - 1)] | None = None
    """1 is served first, then 2 and so on; 0 is the default. Only with --scheduling-policy priority."""
    timeout: Annotated[Int, Field(ge=0, le=INT64_MAX)] | None = None
    """Microseconds from the arrival of the request to its last token; then it ends with an error. 0: no limit."""


_SEQUENCES = "every request stands for itself: there are no sequences of them"
PARAMETER_FIELDS = KnownFields(
    no_effect=frozenset(
        {"binary_data_output"}
    ),  # how the answer is written; read where it is written
    refused={
        "sequence_id": Refused(_SEQUENCES, (0, "")),
        "sequence_start": Refused(_SEQUENCES, (False,)),
        "sequence_end": Refused(_SEQUENCES, (False,)),
        "headers": Refused("headers are not forwarded"),
        "lora_name": Refused("adapters are not available"),
        "prompt_logprobs": Refused("log-probabilities of prompts have no output tensor"),
        "best_of": Refused("use /v1/completions", (1,)),
        "use_beam_search": Refused("use /v1/completions", (False,)),
        "truncate_prompt_tokens": Refused("prompts are never cut"),
    },
)

_FORM_FIELDS = ("structured_outputs", "guided_decoding")


def sampling_params(
    given: GenerateParameters, defaults: Mapping[str, float | int], *, wants_logprobs: bool
) -> SamplingParams:
    """What the engine is to do. `wants_logprobs`: the answer needs them, whether or not they were asked for.

    Raises InvalidParameterError.
    """
    values = sampling_values(given, defaults)
    values["max_tokens"] = given.max_tokens
    values["logprobs"] = 0 if wants_logprobs and given.logprobs is None else given.logprobs
    values["structured_outputs"] = _form(given)
    if given.n is not None:
        values["n"] = given.n
    return SamplingParams(**values)


def form_field(given: GenerateParameters) -> str | None:
    """The parameter that asks for a form, if one does."""
    return next((name for name in _FORM_FIELDS if getattr(given, name)), None)


def _form(given: GenerateParameters) -> StructuredOutputsParams | None:
    field = form_field(given)
    if field is None:
        return None
    options = getattr(given, field)
    if isinstance(options, str):
        options = parse_json_object(options.encode("utf-8"), field)
    if not isinstance(options, dict) or (given.structured_outputs and given.guided_decoding):
        raise InvalidParameterError(
            f"{field} must be an object, given once under one name; given: {str(options)[:80]}",
            parameter=field,
            value=options,
        )
    return form_of(vllm_options(options, field), field)


def asked_terms(given: GenerateParameters) -> TermsFields:
    """Priority and timeout of Triton's schedule policy extension as they are named elsewhere."""
    timeout_s = given.timeout / 1e6 if given.timeout else None
    return TermsFields(priority=engine_priority(given.priority), timeout_s=timeout_s)


def engine_priority(given: int | None) -> int:
    """Triton's priority as the engine's, where lower is earlier and 0 the default: 1 comes before 2, 0 comes last.

    In Triton 0 stands for a level that the model's configuration names; here that is the last.
    """
    return 0 if not given else given - 2**31


def from_text(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters whose values may be text, as KServe's own: "0.7" is 0.7 where a number is expected."""
    return {name: _number_or_switch(name, value) for name, value in values.items()}


_TEXTS = frozenset({"stop", "bad_words", *_FORM_FIELDS})


def _number_or_switch(name: str, value: Any) -> Any:
    if not isinstance(value, str) or name in _TEXTS or name not in GenerateParameters.model_fields:
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise InvalidParameterError(
        f"{name} must be a number or a boolean; given: {value[:80]!r}", parameter=name, value=value
    )
