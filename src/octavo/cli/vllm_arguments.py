"""Forms of arguments that vLLM's command line takes: `--a.b.c value` for a JSON flag, and several values after one flag."""

import json
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from octavo.errors import ConfigError


class VllmCommand(TyperCommand):
    """A command that takes these forms too."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """As typer's, after they have been rewritten."""
        names = {name for parameter in self.params for name in parameter.opts}
        lists = {
            name
            for parameter in self.params
            for name in parameter.opts
            if getattr(parameter, "multiple", False)
        }
        args = with_repeated_flags(with_joined_json(args, names), lists)
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def with_joined_json(args: Sequence[str], names: set[str]) -> list[str]:
    """`--flag.a.b value` for each flag among `names` as one `--flag '{"a": {"b": value}}'`. Raises ConfigError."""
    joined: dict[str, dict[str, Any]] = {}
    others: list[str] = []
    waiting = iter(args)
    for arg in waiting:
        spelled, has_value, value = arg.partition("=")
        flag, *path = spelled.replace("_", "-").split(".") if arg.startswith("--") else [arg]
        if not path or flag not in names:
            others.append(arg)
            continue
        if not has_value:
            value = next(waiting, "")
        # Names inside the JSON keep their underscores.
        _put(joined.setdefault(flag, {}), spelled.split(".")[1:], _value(value), spelled)
    for flag, content in joined.items():
        if any(arg == flag or arg.startswith(f"{flag}=") for arg in others):
            raise ConfigError(f"{flag} is given as a whole and in parts: choose one")
        others += [flag, json.dumps(content)]
    return others


def with_repeated_flags(args: Sequence[str], lists: set[str]) -> list[str]:
    """`--flag a b` as `--flag a --flag b` for flags that may be repeated, if the model stands before them.

    Where it does not, what comes after the first value is the model, as everywhere.
    """
    if not args or args[0].startswith("-"):
        return list(args)
    rewritten: list[str] = []
    repeated: str | None = None
    num_values = 0
    for arg in args:
        if arg.startswith("-"):
            name = arg.replace("_", "-")
            repeated, num_values = (name if name in lists else None), 0
            rewritten.append(arg)
            continue
        if repeated is not None and num_values:
            rewritten.append(repeated)
        num_values += 1
        rewritten.append(arg)
    return rewritten


def _put(content: dict[str, Any], path: Sequence[str], value: Any, spelled: str) -> None:
    *parents, last = path
    for name in parents:
        content = content.setdefault(name, {})
        if not isinstance(content, dict):
            raise ConfigError(f"{spelled}: {name} has a value of its own already")
    if not last or last in content:
        raise ConfigError(f"{spelled} is given twice" if last else f"{spelled}: a name is missing")
    content[last] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def texts(given: Sequence[str] | None) -> tuple[str, ...]:
    """Values of a flag that may be repeated; one may be a JSON list of them, as in `--allowed-origins '["*"]'`."""
    found: list[str] = []
    for text in given or ():
        listed = _value(text) if text.startswith("[") else None
        if isinstance(listed, list) and all(isinstance(value, str) for value in listed):
            found += listed
        else:
            found.append(text)
    return tuple(found)
