"""`--config file.yaml`: flags from a file, by their names. What the command line says itself wins."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from octavo.errors import ConfigError

_NOT_IN_FILES = ("_config", "print_config", "help")
_SECRET = ("server__api_keys",)


def read_config(context: typer.Context, path: str | None) -> str | None:
    """The option's callback: make what the file says the defaults of this command. Raises ConfigError."""
    if path is not None:
        context.default_map = {
            **(context.default_map or {}),
            **_defaults(context.command, path, _read(path)),
        }
    return path


def config_text(context: typer.Context, model: str) -> str:
    """What a command's flags and the model that was chosen come to, as a file that `--config` reads. Secrets are not shown."""
    import yaml  # only here: other commands start without it

    values: dict[str, Any] = {}
    hidden: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in _NOT_IN_FILES or value in (None, [], ()):
            continue
        name = _name(parameter)
        if parameter.name in _SECRET:
            hidden.append(f"# {name}: {len(value)} given, not shown\n")
        else:
            values[name] = list(value) if isinstance(value, (list, tuple)) else value
    values["model"] = model
    return str(yaml.safe_dump(values, sort_keys=True, allow_unicode=True)) + "".join(hidden)


def _read(path: str) -> Mapping[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(Path(path).expanduser().read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path}: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path}: it must hold names and values, as in `port: 8001`")
    return content


def _defaults(command: Any, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {
        name.removeprefix("--"): parameter
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--") and parameter.name not in _NOT_IN_FILES
    }
    defaults: dict[str, Any] = {}
    for given, value in content.items():
        name = str(given).replace("_", "-")
        parameter = parameters.get(name)
        if parameter is None or parameter.name is None:
            near = get_close_matches(name, parameters, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise ConfigError(f"--config {path}: there is no flag --{name}{hint}")
        if parameter.name in defaults:
            raise ConfigError(f"--config {path}: {name} is given twice")
        if value is not None:
            defaults[parameter.name] = _as_argument(path, name, parameter, value)
    return defaults


def _as_argument(path: str, name: str, parameter: Any, value: Any) -> Any:
    """The value as the command line would have it."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ConfigError(f"--config {path}: {name} must be true or false; given: {value}")
        return value
    if isinstance(value, bool):
        raise ConfigError(f"--config {path}: {name} is no switch; given: {value}")
    if getattr(parameter, "multiple", False):
        return [str(one) for one in value] if isinstance(value, list) else [str(value)]
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value)


def _name(parameter: Any) -> str:
    """A parameter as a file names it; the model has no flag of its own where it is an argument."""
    long = [name for name in parameter.opts if name.startswith("--")]
    return long[0].removeprefix("--") if long else str(parameter.name)
