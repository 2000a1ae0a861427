"""What an answer must look like, as a user says it. Names are vLLM's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidParameterError, UnsupportedParameterError

MAX_GRAMMAR_CHARS = 2**20
"""Characters of a schema, expression, grammar or of all choices together."""
FORMS = ("json", "regex", "choice", "grammar", "json_object")
"""The options that say what is wanted; exactly one of them is given."""
_JSON_ONLY = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """One form that the whole text of an answer has. An answer that ends by itself has it; one that is cut
    (max_tokens, stop strings) is a beginning of such a text.

    Raises InvalidParameterError and UnsupportedParameterError for what no model could follow; whether a grammar can be
    compiled turns out when it is. Their `.parameter` is `structured_outputs`.
    """

    json: str | Mapping[str, Any] | bool | None = None
    """A JSON schema, as text or as an object; kept as text."""
    regex: str | None = None
    """The whole answer matches this (the syntax of Rust's regex crate)."""
    choice: Sequence[str] | None = None
    """The answer is one of these."""
    grammar: str | None = None
    """In Lark's syntax, beginning at `start`, or in GBNF, beginning at `root`."""
    json_object: bool | None = None
    """Any JSON object."""
    disable_any_whitespace: bool = False
    """Write JSON without whitespace between its parts."""
    disable_additional_properties: bool = False
    """Objects of a schema have no properties that it does not name, where it says nothing else."""
    whitespace_pattern: str | None = None
    """What may stand between parts of JSON; None: a line break and twenty spaces at most."""
    thought_end: str | None = None
    """If set, the form begins after free text that ends so: what a model thinks before it answers."""
    thought_start: str | None = None
    """That text begins so, and may be missing; None: it has begun in the prompt. Only with `thought_end`."""
    structural_tag: str | None = None
    """Not supported."""

    def __post_init__(self) -> None:
        put = object.__setattr__  # the one place where a frozen value is normalised
        if isinstance(self.json, (Mapping, bool)):
            put(self, "json", _json_text(self.json))
        if self.choice is not None:
            put(self, "choice", _choices(self.choice))
        if self.structural_tag is not None:
            raise UnsupportedParameterError(
                "structured_outputs: structural_tag is not supported; use grammar",
                parameter="structured_outputs",
                value=self.structural_tag,
            )
        self._check_types()
        given = [name for name in FORMS if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise _invalid(f"exactly one of {', '.join(FORMS)} must be given", given)
        self._check_form(given[0])

    @property
    def form(self) -> str:
        """Which of FORMS is given."""
        return next(name for name in FORMS if getattr(self, name) not in (None, False))

    def _check_types(self) -> None:
        for name in (
            "json",
            "regex",
            "grammar",
            "whitespace_pattern",
            "thought_end",
            "thought_start",
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise _invalid(f"{name} must be text", value)
        for name in ("json_object", "disable_any_whitespace", "disable_additional_properties"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise _invalid(f"{name} must be True or False", value)

    def _check_form(self, form: str) -> None:
        value = getattr(self, form)
        if form == "json":
            _parse(value)
        elif form not in ("json", "json_object"):
            for name in _JSON_ONLY:
                if getattr(self, name):
                    raise _invalid(f"{name} needs json or json_object", getattr(self, name))
        if self.disable_any_whitespace and self.whitespace_pattern is not None:
            raise _invalid(
                "whitespace_pattern contradicts disable_any_whitespace", self.whitespace_pattern
            )
        size = len(value) if isinstance(value, str) else sum(map(len, self.choice or ()))
        if form != "json_object" and not size:
            raise _invalid(f"{form} must not be empty", value)
        if size > MAX_GRAMMAR_CHARS:
            raise _invalid(f"{form} may have at most {MAX_GRAMMAR_CHARS} characters", size)


def _choices(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(text, str) and text for text in value
    ):
        raise _invalid("choice must be a list of non-empty strings", value)
    return tuple(dict.fromkeys(value))


def _json_text(schema: Mapping[str, Any] | bool) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"json must be a JSON schema ({error})", schema) from error


def _parse(schema: str) -> None:
    try:
        value = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"json is not valid JSON ({error})", schema) from error
    if not isinstance(value, (dict, bool)):
        raise _invalid("json must be a schema: an object, true or false", value)


def _invalid(message: str, value: object) -> InvalidParameterError:
    given = repr(value)
    shown = given if len(given) <= 80 else given[:80] + "…"
    return InvalidParameterError(
        f"structured_outputs: {message}; given: {shown}",
        parameter="structured_outputs",
        value=value,
    )
