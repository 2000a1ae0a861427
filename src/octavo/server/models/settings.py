"""What a server of several models is told about each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from octavo.config import EngineConfig
from octavo.errors import ConfigError


class LoadWhen(str, Enum):
    """When a model is loaded first."""

    START = "start"
    DEMAND = "demand"
    """By the first request for it."""
    COMMAND = "command"
    """By POST /v1/models/load only."""


@dataclass(frozen=True, slots=True)
class ShortPrompts:
    """Requests whose prompts have few characters are answered by another, usually smaller, model."""

    model: str
    max_chars: int


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model of the server."""

    name: str
    engine: EngineConfig
    aliases: tuple[str, ...] = ()
    """More names that requests may use."""
    chat_template: str | None = None
    load: LoadWhen = LoadWhen.START
    idle_unload_s: float | None = None
    """Unload it when it had no request for this long; the next one loads it again. None: never."""
    fallback: str | None = None
    """Answers instead while this model is down or its queue is full."""
    short_prompts: ShortPrompts | None = None

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip():
            raise ConfigError(
                f"a model's name must not be empty or begin or end with a space; given: {self.name!r}"
            )
        if self.idle_unload_s is not None and not self.idle_unload_s > 0:
            raise ConfigError(
                f"{self.name}: idle-unload must be above 0 seconds; given: {self.idle_unload_s}"
            )
        if self.short_prompts is not None and self.short_prompts.max_chars < 1:
            raise ConfigError(
                f"{self.name}: short-prompts: max-chars must be at least 1; "
                f"given: {self.short_prompts.max_chars}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """All names that requests may use; the first is the one in answers."""
        return (self.name, *self.aliases)

    @property
    def others(self) -> Iterator[tuple[str, str]]:
        """(setting, model) of those that it hands requests to."""
        if self.fallback is not None:
            yield "fallback", self.fallback
        if self.short_prompts is not None:
            yield "short-prompts: model", self.short_prompts.model


def check_models(models: Sequence[ModelSettings]) -> None:
    """Raise ConfigError if there is none, a name occurs twice, or a model hands requests to one that is not there."""
    if not models:
        raise ConfigError("there are no models")
    owners: dict[str, str] = {}
    for model in models:
        for name in model.names:
            if name in owners:
                raise ConfigError(
                    f"the name {name} is given to two models: {owners[name]} and {model.name}"
                )
            owners[name] = model.name
    for model in models:
        for setting, other in model.others:
            if other not in owners:
                raise ConfigError(
                    f"{model.name}: {setting} must be one of {', '.join(owners)}; given: {other}"
                )
            if owners[other] == model.name:
                raise ConfigError(f"{model.name}: {setting} is the model itself")
