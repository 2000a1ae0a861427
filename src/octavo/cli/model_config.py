"""Several models for `octavo serve`: from repeated `--model NAME=MODEL`, or from the file of `--model-config`.

The file is YAML (so JSON, too): `models:` is a list of mappings. Each has `name` and `model`, the settings of
`ModelSettings`, and flags of `octavo serve` about the model, its memory and its batching, without their dashes. What a
model does not set is as the command line says for all.
"""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from octavo.cli.flags import FLAGS, Flag, Group, Reads, Settings
from octavo.cli.numbers import parse_count, parse_length
from octavo.config import choice_of
from octavo.errors import ConfigError
from octavo.server.models.settings import LoadWhen, ModelSettings, ShortPrompts

_FLAGS: Mapping[str, Flag] = {
    spelling.removeprefix("--"): flag
    for flag in FLAGS
    if flag.group in (Group.MODEL, Group.MEMORY)
    for spelling in (flag.name, *flag.also)
    if spelling.startswith("--")
}
_OWN = (
    "name", "model", "aliases", "chat-template", "load", "idle-unload", "fallback", "short-prompts",
)  # fmt: skip


def named_models(given: Sequence[str], settings: Settings) -> list[ModelSettings] | None:
    """The models of `--model NAME=MODEL ...`; None if there is one without a name. Raises ConfigError."""
    pairs = [_named(text) for text in given]
    if len(pairs) < 2 and all(name is None for name, _ in pairs):
        return None
    models = []
    for name, model in pairs:
        if not name or not model:
            raise ConfigError(
                f"each of several models needs a name: --model NAME=MODEL; given: --model {model or name}"
            )
        models.append(ModelSettings(name, settings.engine(model)))
    return models


def _named(text: str) -> tuple[str | None, str]:
    """A name and a model; a file whose path has an equals sign has no name."""
    name, equals, model = text.partition("=")
    return (None, text) if not equals or Path(text).exists() else (name, model)


def read_model_config(path: Path, settings: Settings) -> list[ModelSettings]:
    """The models of a file. Raises ConfigError naming the place."""
    import msgspec.yaml  # PyYAML takes longer to import than the whole of `--help`

    try:
        content = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("models"), list):
        raise ConfigError(f"{path}: a mapping with a list `models` was expected")
    _check_keys(content, ("models",), str(path))
    return [
        _model(entry, settings, f"{path}: models[{i}]") for i, entry in enumerate(content["models"])
    ]


def _model(entry: object, settings: Settings, where: str) -> ModelSettings:
    values = _mapping(entry, where)
    _check_keys(values, (*_OWN, *_FLAGS), where)
    name = _text(values, "name", where)
    model = _text(values, "model", where)
    if name is None or model is None:
        raise ConfigError(f"{where}: {'name' if name is None else 'model'} is missing")
    where = f"{where} ({name})"
    try:
        return ModelSettings(
            name=name,
            engine=_with_flags(settings, values, where).engine(model),
            aliases=_texts(values, "aliases", where),
            chat_template=_text(values, "chat-template", where),
            load=choice_of(LoadWhen, "load", values.get("load", LoadWhen.START.value)),
            idle_unload_s=_number(values, "idle-unload", where),
            fallback=_text(values, "fallback", where),
            short_prompts=_short_prompts(values, where),
        )
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(where) else f"{where}: {message}") from None


def _with_flags(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    """The command line's settings, those of this model instead where it has them."""
    sections = {section: {**fields} for section, fields in settings.values.items()}
    for key, value in values.items():
        if key in _FLAGS and value is not None:
            flag = _FLAGS[key]
            section, name = flag.target.split(".")
            sections.setdefault(section, {})[name] = _flag_value(flag, value, f"{where}: {key}")
    return replace(settings, values=sections)


def _flag_value(flag: Flag, value: object, where: str) -> Any:
    """What the flag would read from the command line."""
    if flag.reads is Reads.SWITCH:
        return _typed(value, bool, "true or false", where)
    if flag.reads in (Reads.COUNT, Reads.LENGTH):
        parse: Callable[[str], int | None] = (
            parse_count if flag.reads is Reads.COUNT else parse_length
        )
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ConfigError(f"{where} takes a whole number, as in 4096 or 4k; given: {value!r}")
        try:
            return parse(str(value))
        except typer.BadParameter as error:
            raise ConfigError(f"{where}: {error}") from None
    if flag.reads is Reads.INTEGER:
        return _typed(value, int, "an integer", where)
    if flag.reads is Reads.REAL:
        return float(_typed(value, (int, float), "a number", where))
    if flag.reads is Reads.TEXTS:
        return tuple(
            _typed(text, str, "text", where) for text in _typed(value, list, "a list", where)
        )
    if isinstance(value, dict):
        return json.dumps(value)  # settings that are JSON on the command line
    return str(_typed(value, (str, int), "text", where))


def _short_prompts(values: Mapping[str, Any], where: str) -> ShortPrompts | None:
    if values.get("short-prompts") is None:
        return None
    where = f"{where}: short-prompts"
    rule = _mapping(values["short-prompts"], where)
    _check_keys(rule, ("model", "max-chars"), where)
    if set(rule) != {"model", "max-chars"}:
        raise ConfigError(
            f"{where} needs model and max-chars; given: {', '.join(rule) or 'nothing'}"
        )
    return ShortPrompts(
        _typed(rule["model"], str, "text", f"{where}: model"),
        _typed(rule["max-chars"], int, "an integer", f"{where}: max-chars"),
    )


def _mapping(value: object, where: str) -> dict[str, Any]:
    """With dashes in its keys, whichever way they were written."""
    mapping = _typed(value, dict, "a mapping", where)
    return {str(key).replace("_", "-"): item for key, item in mapping.items()}


def _text(values: Mapping[str, Any], key: str, where: str) -> str | None:
    value = values.get(key)
    return None if value is None else str(_typed(value, (str, int), "text", f"{where}: {key}"))


def _texts(values: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    texts = _typed(values.get(key) or [], list, "a list of texts", f"{where}: {key}")
    return tuple(_typed(text, str, "text", f"{where}: {key}") for text in texts)


def _number(values: Mapping[str, Any], key: str, where: str) -> float | None:
    value = values.get(key)
    return (
        None if value is None else float(_typed(value, (int, float), "a number", f"{where}: {key}"))
    )


def _typed(value: Any, kind: type | tuple[type, ...], what: str, where: str) -> Any:
    is_wrong_bool = isinstance(value, bool) and kind is not bool
    if is_wrong_bool or not isinstance(value, kind):
        raise ConfigError(f"{where} takes {what}; given: {value!r}")
    return value


def _check_keys(values: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for key in values:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(allowed)}"
            raise ConfigError(f"{where}: there is no setting {key!r}{hint}")
