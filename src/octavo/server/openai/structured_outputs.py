"""The request fields that say what form an answer has: OpenAI's, vLLM's and its older ones, TGI's."""

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError, UserError
from octavo.server.openai.requests import GenerationBody, ResponseFormat
from octavo.text.answer.tools import Tool, schema_mistake

_OWN_FIELD = "structured_outputs"
_GUIDED = {
    "guided_json": "json",
    "guided_json_object": "json_object",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
_KNOWN = (
    "json", "json_object", "regex", "choice", "grammar", "structural_tag", "whitespace_pattern",
    "disable_any_whitespace", "disable_additional_properties",
)  # fmt: skip
_NO_EFFECT = ("disable_fallback", "backend")
"""Options of `structured_outputs` that choose among vLLM's compilers."""


def structured_outputs(body: GenerationBody) -> StructuredOutputsParams | None:
    """The form that a request wants; None: text without any.

    Raises InvalidParameterError and UnsupportedParameterError that name the field.
    """
    fields = _form_fields(body)
    if not fields:
        return None
    if len(fields) > 1:
        raise InvalidParameterError(
            f"only one of {', '.join(fields)} can be given: an answer has one form",
            parameter=fields[1],
        )
    return form_of(_options(body, fields[0]), fields[0])


def form_of(options: Mapping[str, Any], field: str) -> StructuredOutputsParams:
    """vLLM's options as the form that they ask for. Raises InvalidParameterError, UnsupportedParameterError for `field`."""
    try:
        return StructuredOutputsParams(**options)
    except UserError as error:
        raise naming_field(error, field) from error


def form_field(body: GenerationBody) -> str | None:
    """The field that asks for a form, if one does."""
    return next(iter(_form_fields(body)), None)


def naming_field(error: UserError, field: str | None) -> UserError:
    """An error about a grammar that names the field in which the request has it."""
    if error.parameter != _OWN_FIELD or field in (None, _OWN_FIELD):
        return error
    text = str(error)
    if text.startswith(_OWN_FIELD):
        _, _, text = text.partition(": ")
        text = f"{field}: {text}"
    return type(error)(text, parameter=field, value=error.value)


def about_tools(error: UserError, tools: Sequence[Tool]) -> UserError:
    """An error about the grammar of calls of these tools that says whose schema is wrong, and where in it.

    Takes as long as `schema_mistake`.
    """
    mistake = schema_mistake(tools) if error.parameter == _OWN_FIELD else None
    if mistake is None:
        return naming_field(error, "tools")
    return type(error)(mistake, parameter="tools", value=error.value)


def _form_fields(body: GenerationBody) -> list[str]:
    fields = []
    if body.response_format is not None and body.response_format.type != "text":
        fields.append("response_format")
    if body.structured_outputs:
        fields.append(_OWN_FIELD)
    return fields + [name for name in _GUIDED if getattr(body, name) not in (None, False)]


def _options(body: GenerationBody, field: str) -> dict[str, Any]:
    if field == "response_format":
        assert body.response_format is not None
        options = _response_format(body.response_format)
    elif field == _OWN_FIELD:
        options = vllm_options(body.structured_outputs or {}, field)
    else:
        options = {_GUIDED[field]: getattr(body, field)}
    if body.guided_whitespace_pattern is not None:
        options.setdefault("whitespace_pattern", body.guided_whitespace_pattern)
    return options


def _response_format(form: ResponseFormat) -> dict[str, Any]:
    if form.value is not None:
        return tgi_options(form.type, form.value, "response_format")
    if form.type == "json_object":
        return {"json_object": True}
    if form.type != "json_schema":
        raise UnsupportedParameterError(
            f"response_format.type must be text, json_object or json_schema; given: {form.type[:80]}",
            parameter="response_format",
            value=form.type,
        )
    schema = None if form.json_schema is None else form.json_schema.json_schema
    if schema is None:
        raise InvalidParameterError(
            "response_format.json_schema.schema is required with the type json_schema",
            parameter="response_format",
        )
    return {"json": schema}


def tgi_options(kind: str, value: Any, field: str) -> dict[str, Any]:
    """A form as Text Generation Inference has it, its type and its value, in vLLM's options. Raises InvalidParameterError."""
    if kind in ("json", "json_object"):
        return {"json": value}
    if kind == "regex":
        return {"regex": value}
    if kind != "json_schema":
        raise InvalidParameterError(
            f"{field}: type must be json, json_object, json_schema or regex; given: {kind[:80]}",
            parameter=field,
            value=kind,
        )
    if not isinstance(value, Mapping) or "schema" not in value:
        raise InvalidParameterError(
            f"{field}: the value must be an object with a schema, as the type json_schema has it",
            parameter=field,
        )
    return {"json": value["schema"]}


def vllm_options(given: Mapping[str, Any], field: str) -> dict[str, Any]:
    """The options of a request that say something here. Raises InvalidParameterError for one that there is not."""
    options = {name: value for name, value in given.items() if name not in _NO_EFFECT}
    for name in options:
        if name not in _KNOWN:
            raise InvalidParameterError(
                f"{field} has no option {name[:80]!r}; it has {', '.join(_KNOWN)}",
                parameter=field,
            )
    # null means the default, as in all of a request.
    return {name: value for name, value in options.items() if value is not None}
