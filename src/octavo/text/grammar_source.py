"""`StructuredOutputsParams` -> the text that llguidance compiles."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from octavo.core.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

WHITESPACE = r"\n? {0,20}"
"""Between the parts of JSON. Bounded: models that have nothing to say fill their answer with whitespace."""
_ANY_OBJECT = '{"type": "object"}'
_START = re.compile(r"^start\s*:", re.MULTILINE)
_GBNF = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)


def grammar_source(params: StructuredOutputsParams) -> str:
    """The source. What is wrong with it shows when it is compiled; ValueError for what cannot be brought into this form."""
    from llguidance import LLMatcher

    if params.thought_end is None and params.form in ("json", "json_object"):
        schema = json_schema(params)
        return LLMatcher.grammar_from_json_schema(schema, overrides=json_options(params))
    return LLMatcher.grammar_from_lark(_lark(params))


def _lark(params: StructuredOutputsParams) -> str:
    if params.grammar is not None:
        lark = _as_lark(params.grammar)
    else:
        lark = f"start: {_body(params)}\n"
    if params.thought_end is None:
        return lark
    end = _regex_text(params.thought_end)
    begin = "" if params.thought_start is None else _regex_text(params.thought_start)
    optional = "" if params.thought_start is None else "?"
    return (
        _START.sub("answer:", lark)
        + f"\nstart: (thought space){optional} answer\n"
        + f"thought[lazy]: /{begin}(?s:.*){end}/\n"
        + "space: /[ \\n]{0,4}/\n"
    )


def _body(params: StructuredOutputsParams) -> str:
    from llguidance import regex_to_lark

    if params.regex is not None:
        # \d and \w are those of ASCII, so that what matches here does so in every dialect.
        return f"/{regex_to_lark(params.regex, 'dws')}/"
    if params.choice is not None:
        return " | ".join(lark_text(text) for text in params.choice)
    schema = json.loads(json_schema(params))
    return f"%json {json.dumps({**schema, 'x-guidance': json_options(params)})}"


def _regex_text(text: str) -> str:
    """A text as an expression between slashes."""
    return re.escape(text).replace("/", "\\/")


def json_schema(params: StructuredOutputsParams) -> str:
    """The schema as text: true as the empty schema, objects closed if that was asked for."""
    if params.json is None:
        return _ANY_OBJECT
    schema = json.loads(str(params.json))
    if schema is False:
        raise ValueError("#: no value is valid against the schema false")
    if schema is True:
        schema = {}
    if params.disable_additional_properties:
        schema = _closed(schema)
    return json.dumps(schema)


def json_options(params: StructuredOutputsParams) -> "JsonCompileOptions":
    """How JSON is written. All options are said: a schema could set them by its key `x-guidance`."""
    whitespace = WHITESPACE if params.whitespace_pattern is None else params.whitespace_pattern
    return {
        "item_separator": ",",
        "key_separator": ":",
        "whitespace_flexible": not params.disable_any_whitespace,
        "whitespace_pattern": None if params.disable_any_whitespace else whitespace,
        "coerce_one_of": False,
        "lenient": False,
    }


def lark_text(text: str) -> str:
    """A text as a literal of a Lark grammar."""
    return json.dumps(text)


def _closed(schema: Any) -> Any:
    """A schema whose objects have no other properties than those it names, where it says nothing else."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed = {
        # Data, not schemas.
        name: part if name in ("enum", "const", "default", "examples") else _closed(part)
        for name, part in schema.items()
    }
    if isinstance(schema.get("properties"), Mapping):
        closed.setdefault("additionalProperties", False)
    return closed


def _as_lark(grammar: str) -> str:
    if not _GBNF.search(grammar):
        return grammar
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(grammar)
    except Exception as error:  # of no class of its own for mistakes in a grammar
        raise ValueError(str(error)) from error
