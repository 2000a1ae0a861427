"""Random JSON schemas such as programs write them: nested objects, lists, unions, references, limits, formats."""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

Schema = dict[str, Any]
T = TypeVar("T")

NAMES = (
    "id", "name", "title", "kind", "status", "count", "price", "tags", "items", "owner", "email", "city", "street",
    "created_at", "is_active", "score", "notes", "parent", "options", "größe",
)  # fmt: skip
WORDS = (
    "red",
    "green",
    "x y",
    'a "quoted" one',
    "tab\there",
    "back\\slash",
    "ünï",
    "中文",
    "🙂",
    "",
    "3",
    "line\nbreak",
)
FORMATS = ("date", "date-time", "time", "email", "uuid", "ipv4", "hostname")
PATTERNS = ("^[A-Z]{2,3}$", "^[a-z]{1,8}-[0-9]{1,4}$", "^(red|green|blue)$", "^\\d{3}-\\d{4}$")
UNSUPPORTED: tuple[Schema, ...] = (
    {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    {"type": "array", "contains": {"type": "string"}},
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"minLength": 2}},
    {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
)
"""Valid schemas with keywords that the library does not know."""
UNSUPPORTED_SHARE = 0.03


def random_schema(random: Random) -> Schema:
    """As programs write them: an object at the top, at times a reference, and rarely a keyword that is not known."""
    schema = _object(random, depth=3, closed=True)
    if random.random() < 0.15:
        schema["$defs"] = {"part": _any(random, depth=1)}
        schema["properties"]["part"] = {"$ref": "#/$defs/part"}
    if random.random() < UNSUPPORTED_SHARE:
        schema["properties"]["odd"] = random.choice(UNSUPPORTED)
    return schema


def _any(random: Random, depth: int) -> Schema:
    if depth > 0 and random.random() < 0.4:
        return random.choice((_object, _object, _array, _union))(random, depth)
    return random.choice((_string, _string, _number, _simple))(random)


def _object(random: Random, depth: int, closed: bool = False) -> Schema:
    names = random.sample(NAMES, random.randint(1, 4))
    schema: Schema = {
        "type": "object",
        "properties": {name: _any(random, depth - 1) for name in names},
        "required": _some(random, names),
    }
    if closed or random.random() < 0.8:
        schema["additionalProperties"] = random.random() < 0.05 and {"type": "boolean"}
    return schema


def _array(random: Random, depth: int) -> Schema:
    schema: Schema = {"type": "array", "items": _any(random, depth - 1)}
    low = random.randint(0, 2)
    if random.random() < 0.5:
        schema["minItems"] = low
    if random.random() < 0.8:  # most lists that programs ask for have an end
        schema["maxItems"] = low + random.randint(0, 3)
    return schema


def _union(random: Random, depth: int) -> Schema:
    return {"anyOf": [_any(random, depth - 1) for _ in range(random.randint(1, 3))]}


def _string(random: Random) -> Schema:
    low = random.randint(0, 5)
    kinds: tuple[Schema, ...] = (
        {"type": "string"},
        {"type": "string", "maxLength": 40, "description": "a few words"},
        {"type": "string", "minLength": low, "maxLength": low + random.randint(0, 30)},
        {"type": "string", "format": random.choice(FORMATS)},
        {"type": "string", "pattern": random.choice(PATTERNS)},
        {"enum": random.sample(WORDS, random.randint(1, 5))},
        {"const": random.choice(WORDS)},
    )
    return random.choice(kinds)


def _number(random: Random) -> Schema:
    schema: Schema = {"type": random.choice(("integer", "number"))}
    low = random.randint(-1000, 1000)
    if random.random() < 0.6:
        schema[random.choice(("minimum", "exclusiveMinimum"))] = low
    if random.random() < 0.6:
        high = low + 2 + random.randint(0, 5000)
        schema[random.choice(("maximum", "exclusiveMaximum"))] = high
    return schema


def _simple(random: Random) -> Schema:
    kinds: tuple[Schema, ...] = (
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["string", "null"], "maxLength": 30},
    )
    return dict(random.choice(kinds))


def _some(random: Random, names: Sequence[T]) -> list[T]:
    return [name for name in names if random.random() < 0.7]
