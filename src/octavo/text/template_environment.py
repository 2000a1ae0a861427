"""The Jinja environment of chat templates: what Hugging Face's offers, in a sandbox, with bounds.

Templates come with models, and from requests where the server allows it: foreign code. They cannot reach
Python's internals or change what they are given, and neither their source, their output nor a repeated
string may grow without limit.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.errors import TemplateError

MAX_SOURCE_CHARS = 1 << 18
"""The largest published templates have about 30,000."""
MAX_RENDERED_CHARS = 1 << 24
MAX_POWER = 1 << 10
MAX_STEPS = 1 << 21
"""Rounds of all loops, and calls, each of which counts as CALL_STEPS of them: at most about three seconds."""
CALL_STEPS = 8


class _GenerationTag(Extension):
    """`{% generation %}` marks what the assistant said, for training. Here only the body matters."""

    tags = {"generation"}  # noqa: RUF012  (jinja's own class attribute)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _CountingContext(Context):
    """The variables of one rendering, and how much of what it may do it has done."""

    num_steps = 0

    def count(self, num_steps: int) -> None:
        """Raise TemplateRuntimeError once there have been too many."""
        self.num_steps += num_steps
        if self.num_steps > MAX_STEPS:
            raise jinja2.TemplateRuntimeError(f"loops and calls exceed {MAX_STEPS} steps in all")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates. Raises octavo's TemplateError for one that cannot be compiled."""

    intercepted_binops = frozenset({"*", "**"})
    context_class = _CountingContext

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, LoopControlExtension]
        )
        self.filters["tojson"] = _to_json
        self.filters[_COUNTED] = _counted
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Let every loop go over its values through `_counted`."""
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(
                loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno, environment=self
            )
        return tree

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call, counted: macros may call each other without a loop."""
        assert isinstance(context, _CountingContext)
        context.count(CALL_STEPS)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiplication and powers, unless the result would fill the memory."""
        if operator == "**" and max(abs(left), abs(right)) > MAX_POWER:
            raise jinja2.TemplateRuntimeError(f"numbers above {MAX_POWER} cannot be powers here")
        for repeated, times in ((left, right), (right, left)):
            if not isinstance(repeated, Sequence) or not isinstance(times, int):
                continue
            if len(repeated) * times > MAX_RENDERED_CHARS:
                raise jinja2.TemplateRuntimeError(f"a repetition exceeds {MAX_RENDERED_CHARS}")
        return super().call_binop(context, operator, left, right)

    def compile_template(self, source: str) -> jinja2.Template:
        """The compiled template."""
        if len(source) > MAX_SOURCE_CHARS:
            raise TemplateError(
                f"the chat template must have at most {MAX_SOURCE_CHARS} characters; given: {len(source)}",
                parameter="chat_template",
            )
        try:
            return self.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise TemplateError(
                f"the chat template cannot be compiled: {error}", parameter="chat_template"
            ) from error


def render_template(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """The template's output. Raises TemplateError with the template's own words if it refuses."""
    parts: list[str] = []
    num_chars = 0
    try:
        for part in template.generate(variables):
            num_chars += len(part)
            if num_chars > MAX_RENDERED_CHARS:
                break
            parts.append(part)
    except _RefusalError as refusal:
        raise TemplateError(str(refusal), parameter="messages") from refusal
    except Exception as error:  # foreign code: anything can go wrong in it
        raise TemplateError(
            f"the chat template failed: {type(error).__name__}: {error}", parameter="messages"
        ) from error
    if num_chars > MAX_RENDERED_CHARS:
        raise TemplateError(
            f"the chat template's output exceeds {MAX_RENDERED_CHARS} characters",
            parameter="messages",
        )
    return "".join(parts)


_COUNTED = "octavo_counted"


@jinja2.pass_context
def _counted(context: _CountingContext, values: Any) -> Any:
    """The values of a loop. Of those that know how many they are all count at once, and stay what they are."""
    if isinstance(values, Sized):
        context.count(len(values))
        return values
    return _each_counted(context, values)


def _each_counted(context: _CountingContext, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        context.count(1)
        yield value


class _RefusalError(Exception):
    """A template called `raise_exception`."""


def _raise_exception(message: object) -> None:
    raise _RefusalError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own, keeps every character as it is: the output is no HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
