"""JSON against the types of a client's package: no field unknown to them, none missing."""

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

T = TypeVar("T")


def strictly(kind: "type[T]", value: Any) -> T:
    """`value` as `kind`, which may be a union. Fails for what `kind` lacks or does not know, at any depth."""
    union: Any = kind
    parsed: T = _adapter(union).validate_python(value)
    _refuse_unknown(parsed, getattr(kind, "__name__", "event"))
    return parsed


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Events are unions of scores of types: an adapter takes longer than all it parses."""
    return TypeAdapter(kind)


def _refuse_unknown(value: object, where: str) -> None:
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{where} has fields that nobody knows: {value.model_extra}"
        for name in type(value).model_fields:
            _refuse_unknown(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            _refuse_unknown(part, f"{where}[{i}]")
