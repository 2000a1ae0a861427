"""What is wrong with a JSON schema, and where: told by the compiler, without a vocabulary."""

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.text.schema_places import place_of

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_DEFINITION = re.compile(r"\s*while processing json-schema:///(#\S*)")


@dataclass(frozen=True, slots=True)
class SchemaMistake:
    """Why a schema cannot be followed."""

    place: str
    """A JSON pointer."""
    message: str
    """Of the compiler."""


def find_mistake(schema: Any, options: "JsonCompileOptions") -> SchemaMistake | None:
    """What the compiler says of a schema with these options (`grammar_source.json_options`); None: nothing.

    It compiles parts of the schema by themselves, some hundreds at most: not for the event loop.
    """

    def error_of(part: Any) -> str | None:
        from llguidance import LLMatcher  # late: most engines never need it

        try:
            source = LLMatcher.grammar_from_json_schema(json.dumps(part), overrides=options)
        except ValueError as error:
            return str(error)
        return LLMatcher.validate_grammar(source) or None

    message = error_of(schema)
    if message is None:
        return None
    definition = _DEFINITION.search(message)
    if definition is not None:
        return SchemaMistake(definition[1], message[: definition.start()])
    return SchemaMistake(place_of(schema, message, error_of), message)
