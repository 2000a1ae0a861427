"""The tools of a request: checked, and as a grammar of the calls that must be made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError
from octavo.text.answer.tool_formats import ToolFormat
from octavo.text.grammar_source import json_options, lark_text
from octavo.text.schema_mistakes import find_mistake
from octavo.text.tokenizer import Tokenizer

MAX_NAME_CHARS = 256
MAX_CALLS = 16
"""Calls that an answer may consist of where it must consist of calls: some models never stop calling."""
_ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object"}
_ARGUMENTS = StructuredOutputsParams(json_object=True)
"""How the JSON of a call is written."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments."""
    strict: bool = False
    """Whether its arguments must fit the schema also where the model may do as it likes."""
    place: str = "parameters"
    """Where the schema stands in the request."""


def tools_of(
    given: Sequence[Mapping[str, Any]], schema_field: str = "function.parameters"
) -> list[Tool]:
    """The tools of a request, whose schemas the user wrote in `schema_field` of each.

    Raises InvalidParameterError with the place of what is wrong.
    """
    tools: list[Tool] = []
    for i, entry in enumerate(given):
        if entry.get("type") != "function":
            raise _invalid(f"tools[{i}].type must be function", entry.get("type"))
        function = entry.get("function")
        if not isinstance(function, Mapping):
            raise _invalid(f"tools[{i}].function must be an object", function)
        name, parameters = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
            raise _invalid(
                f"tools[{i}].function.name must be text of 1 to {MAX_NAME_CHARS} characters", name
            )
        if parameters is not None and not isinstance(parameters, Mapping):
            raise _invalid(f"tools[{i}].function.parameters must be a JSON schema", parameters)
        place = f"tools[{i}].{schema_field}"
        is_strict = function.get("strict") is True
        tools.append(Tool(name, parameters or _ANY_ARGUMENTS, is_strict, place))
    return tools


def calls_grammar(
    tools: Sequence[Tool],
    form: ToolFormat,
    tokenizer: Tokenizer,
    *,
    several: bool,
    may_speak: bool = False,
) -> str:
    """A Lark grammar of an answer that consists of calls, as the model's family writes them. `start` is its root.

    `may_speak`: the answer may be text, or begin with it; then only the arguments of strict tools are bound.
    The format must have a mark for that.
    """
    again = f"{{0,{MAX_CALLS - 1}}}"
    mark, end = _literal(form.start, tokenizer), _literal(form.end, tokenizer)
    more = ""
    if form.end:
        tail = f'"\\n" body "\\n" {end}'
        more = f'("\\n" {mark} tail){again}' if several else ""
    else:
        separator = lark_text(form.separators[:1] + " ")
        tail = f"body ({separator} body){again}" if several else "body"
        tail = f"{lark_text(form.list_open)} {tail} {lark_text(form.list_close)}"
    lines = [f"start: {mark} tail {more}"]
    if may_speak:
        lines = [f"start: FREE | before tail {more}", "FREE: /(?s:.*)/", _before(form, mark)]
    schemas = [
        _call_schema(tool, i, form, any_arguments=may_speak and not tool.strict)
        for i, tool in enumerate(tools)
    ]
    body = json.dumps({"anyOf": schemas, "x-guidance": json_options(_ARGUMENTS)})
    return "\n".join([*lines, f"tail: {tail}", f"body: %json {body}"])


def schema_mistake(tools: Sequence[Tool]) -> str | None:
    """What is wrong with the first schema that cannot be followed, after its place in the request; None: nothing.

    Takes as long as `find_mistake`.
    """
    for tool in tools:
        found = find_mistake(tool.parameters, json_options(_ARGUMENTS))
        if found is not None:
            return f"{tool.place}{_path(found.place)}: {' '.join(found.message.split())}"
    return None


def _path(pointer: str) -> str:
    """A JSON pointer as a path of names and indices."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    return "".join(
        f"[{key}]"
        if key.isdecimal()
        else f".{key}"
        if key.strip("$").isidentifier()
        else f"[{key!r}]"
        for key in keys
    )


def _before(form: ToolFormat, mark: str) -> str:
    """The rule of text that ends with the mark of a call."""
    if mark == lark_text(form.start):
        return f"before[suffix={mark}]: /(?s:.*)/"
    return f"before: FREE? {mark}"


def _call_schema(
    tool: Tool, index: int, form: ToolFormat, *, any_arguments: bool
) -> dict[str, Any]:
    key = form.arguments_key
    parameters = _ANY_ARGUMENTS if any_arguments else tool.parameters
    place = f"#/anyOf/{index}/properties/{key}"
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, key: _moved(parameters, place)},
        "required": ["name", key],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """A schema whose references still lead to its own parts when it lies at `place` in another."""
    if isinstance(schema, list):
        return [_moved(part, place) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {}
    for name, part in schema.items():
        if name == "$ref" and isinstance(part, str) and part.startswith("#"):
            moved[name] = place + part[1:]
        elif name not in ("enum", "const", "default", "examples"):
            moved[name] = _moved(part, place)
        else:
            moved[name] = part
    return moved


def _literal(mark: str, tokenizer: Tokenizer) -> str:
    """A mark in a grammar: the token, if it is one that text does not spell."""
    token_id = tokenizer.token_id(mark) if mark else None
    if token_id is not None and tokenizer.is_special(token_id):
        return f"<[{token_id}]>"
    return lark_text(mark)


def _invalid(message: str, value: object) -> InvalidParameterError:
    given = repr(value)
    return InvalidParameterError(f"{message}; given: {given[:80]}", parameter="tools", value=value)
