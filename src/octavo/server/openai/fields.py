"""Which fields a request may have, and how a parsed JSON object becomes a checked request.

A field is one of four: declared on the request model (honoured); known but without effect on the answer;
known but refused by name; unknown: accepted and named in the response header, or refused when the server is strict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.server.openai.limits import MAX_FIELDS

IGNORED_FIELDS_HEADER = "x-octavo-ignored-fields"
_MAX_GIVEN_LEN = 80
_MAX_NAMED_FIELDS = 32


def _integral(value: object) -> object:
    # JSON has one kind of number: 5.0 is 5. Everything else is left to the strict check.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


Int = Annotated[int, BeforeValidator(_integral, json_schema_input_type=int)]
"""An integer; not a boolean, not a string."""


class RequestBody(BaseModel):
    """A request: declared fields have exactly their JSON types, null means the default, others are kept apart."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class Refused:
    """A known field that would change the answer. `harmless` are the values that ask for nothing, besides null."""

    reason: str
    harmless: tuple[object, ...] = ()

    def is_harmless(self, value: object) -> bool:
        """Whether `value` asks for nothing. Types count: 0 is not false."""
        return value is None or any(type(value) is type(h) and value == h for h in self.harmless)


@dataclass(frozen=True, slots=True)
class KnownFields:
    """What one endpoint does with the fields that its request model does not declare."""

    no_effect: frozenset[str]
    refused: Mapping[str, Refused]


NO_OTHERS = KnownFields(frozenset(), {})
"""All that is known is declared."""


class NestedBody(RequestBody):
    """An object inside a request, such as `stream_options`."""

    known: ClassVar[KnownFields] = NO_OTHERS


@dataclass(frozen=True, slots=True)
class ObjectFields:
    """What becomes of the fields of an object that no model describes, such as a tool or a part of a conversation."""

    taken: frozenset[str]
    others: KnownFields

    def unknown_in(self, given: Mapping[str, Any], place: str) -> list[str]:
        """Fields that nobody knows, by their places. Raises UnsupportedParameterError for one that is refused."""
        extra = {name: value for name, value in given.items() if name not in self.taken}
        return _sort_out(extra, self.others, f"{place}.")


Body = TypeVar("Body", bound=RequestBody)


def parse_request(
    model: type[Body], fields: dict[str, Any], known: KnownFields, *, strict: bool
) -> tuple[Body, list[str]]:
    """The checked request and the names of the fields that were ignored because nobody knows them.

    Raises InvalidParameterError, UnsupportedParameterError.
    """
    if len(fields) > MAX_FIELDS:
        raise InvalidParameterError(
            f"a request may have at most {MAX_FIELDS} fields; given: {len(fields)}"
        )
    try:
        body = model.model_validate(fields)
    except ValidationError as error:
        raise _as_invalid_parameter(error, fields) from None
    ignored = _unknown_in(body, known, "")
    if strict:
        refuse_unknown(ignored)
    return body, ignored


def refuse_unknown(names: list[str]) -> None:
    """Raise InvalidParameterError if any field is unknown."""
    if names:
        raise InvalidParameterError(
            f"unknown field {names[0]!r}; this server was started with --strict-requests",
            parameter=names[0],
        )


def ignored_header(names: list[str]) -> dict[str, str]:
    """The header that names the ignored fields; empty if there are none."""
    if not names:
        return {}
    shown = [_header_safe(name) for name in names[:_MAX_NAMED_FIELDS]]
    if len(names) > len(shown):
        shown.append("...")
    return {IGNORED_FIELDS_HEADER: ", ".join(shown)}


def _unknown_in(body: RequestBody, known: KnownFields, place: str) -> list[str]:
    ignored = _sort_out(body.model_extra or {}, known, place)
    for name, info in type(body).model_fields.items():
        nested = getattr(body, name)
        if isinstance(nested, NestedBody):
            ignored += _unknown_in(nested, nested.known, f"{place}{info.alias or name}.")
    return ignored


def _sort_out(extra: Mapping[str, Any], known: KnownFields, place: str) -> list[str]:
    ignored: list[str] = []
    for name, value in extra.items():
        if refused := known.refused.get(name):
            if not refused.is_harmless(value):
                raise UnsupportedParameterError(
                    f"{place}{name} is not supported: {refused.reason}",
                    parameter=f"{place}{name}",
                    value=value,
                )
        elif name not in known.no_effect:
            ignored.append(f"{place}{name}")
    return ignored


def _as_invalid_parameter(error: ValidationError, fields: object) -> InvalidParameterError:
    first = error.errors(include_url=False, include_context=False)[0]
    path, value = _found(fields, first["loc"], is_missing=first["type"] == "missing")
    name = ".".join(str(part) for part in path) or None
    if first["type"] == "missing":
        message = f"{name} is required"
    else:
        what = first["msg"][:1].lower() + first["msg"][1:]
        message = f"{name or 'the request'}: {what}; given: {_given(value)}"
    return InvalidParameterError(message, parameter=name, value=value)


def _found(
    value: Any, location: tuple[int | str, ...], *, is_missing: bool
) -> tuple[list[int | str], Any]:
    """The part of a location that the request has (the rest names types that were tried), and what is there."""
    path: list[int | str] = []
    for part in location:
        if isinstance(value, dict) and part in value:
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif not is_missing:
            continue
        path.append(part)
    return path, value


def _given(value: object) -> str:
    # Cut before it is written out: it may be megabytes long.
    if isinstance(value, str):
        value = value[:_MAX_GIVEN_LEN]
    elif isinstance(value, (list, dict)) and len(value) > 16:
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _MAX_GIVEN_LEN else text[:_MAX_GIVEN_LEN] + "…"


def _header_safe(name: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name[:64])
