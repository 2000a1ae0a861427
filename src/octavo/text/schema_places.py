"""Where in a JSON schema something is wrong, which a compiler only says without a place."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_PROBES = 500
"""Parts of a schema that are compiled by themselves at most, to find one that is wrong."""
_ONE = (
    "additionalProperties", "items", "contains", "not", "if", "then", "else", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_KEYS = re.compile(r'"((?:[^"\\]|\\.)*)"')

Schema = Any


def place_of(schema: Schema, message: str, error_of: Callable[[Schema], str | None]) -> str:
    """The JSON pointer of the innermost part of a schema that by itself gives the same error message.

    `error_of` compiles a schema. If the message names keywords, the pointer ends with the first that is there.
    """
    place, probes = "#", 0
    definitions = _definitions(schema)
    is_found = True
    while is_found:
        is_found = False
        for step, part in _parts(schema):
            probes += 1
            if probes > MAX_PROBES:
                return place
            if error_of(_with_definitions(part, definitions)) == message:
                place, schema, is_found = place + step, part, True
                break
    if isinstance(schema, Mapping):
        named = [name for name in _KEYS.findall(message) if name in schema]
        if named:
            return f"{place}/{_escaped(named[0])}"
    return place


def _parts(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas directly inside a schema, with the pointers that lead to them."""
    if not isinstance(schema, Mapping):
        return
    for name in _NAMED:
        if isinstance(schema.get(name), Mapping):
            for key, part in schema[name].items():
                yield f"/{name}/{_escaped(key)}", part
    for name in _LISTS:
        if isinstance(schema.get(name), list):
            for i, part in enumerate(schema[name]):
                yield f"/{name}/{i}", part
    for name in _ONE:
        if isinstance(schema.get(name), (Mapping, bool)):
            yield f"/{name}", schema[name]


def _definitions(schema: Schema) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    return {name: schema[name] for name in ("$defs", "definitions") if name in schema}


def _with_definitions(part: Schema, definitions: Mapping[str, Any]) -> Schema:
    return {**definitions, **part} if isinstance(part, Mapping) else part


def _escaped(key: str) -> str:
    """A key in a JSON pointer (RFC 6901), shortened."""
    text = key.replace("~", "~0").replace("/", "~1")
    return text if len(text) <= 80 else json.dumps(text[:80])[1:-1] + "…"
