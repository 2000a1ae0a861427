"""All models of a server: found by name, loaded and unloaded, and which one answers which request."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from octavo.config import ServerConfig
from octavo.engine.process import MODULE
from octavo.errors import OctavoError
from octavo.server.http_errors import HttpError
from octavo.server.models.settings import LoadWhen, ModelSettings, check_models
from octavo.server.models.slot import ModelSlot, SlotState, Unloaded
from octavo.server.openai.responses.store import ResponseStore


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer a request, and why it is this one."""

    slot: ModelSlot
    reason: str
    """name | alias | default | short prompt | fallback"""


class ModelRegistry:
    """The models in the order of the settings; requests that name none mean the first."""

    def __init__(
        self,
        models: Sequence[ModelSettings],
        server: ServerConfig,
        *,
        engine_module: str = MODULE,
    ) -> None:
        """Raises ConfigError for names that do not fit together."""
        check_models(models)
        self._by_name = {name: model for model in models for name in model.names}
        self.responses = ResponseStore()
        """Of all models: a conversation may go on with another."""
        self.slots = {
            model.name: ModelSlot(
                model,
                server,
                self._accepted(model, models),
                self.responses,
                engine_module=engine_module,
            )
            for model in models
        }

    def _accepted(self, model: ModelSettings, models: Sequence[ModelSettings]) -> tuple[str, ...]:
        """Its own names, then those of all models that hand it requests, however indirectly."""
        names = list(model.names)
        sources = [model.name]
        for target in sources:
            for other in models:
                hands_over = any(self._by_name[to].name == target for _, to in other.others)
                if hands_over and other.name not in sources:
                    sources.append(other.name)
                    names += other.names
        return tuple(names)

    # by name

    def slot(self, name: str | None) -> ModelSlot:
        """The model under one of its names; None: the first. Raises HttpError 404."""
        if name is None:
            return next(iter(self.slots.values()))
        if name not in self._by_name:
            raise HttpError(
                404,
                f"The model `{name[:200]}` does not exist. This server has: {', '.join(self._by_name)}.",
                param="model",
            )
        return self.slots[self._by_name[name].name]

    @property
    def names(self) -> Iterator[tuple[str, ModelSlot]]:
        """Every name with its model."""
        for name, model in self._by_name.items():
            yield name, self.slots[model.name]

    def candidates(self, name: str | None, num_chars: int) -> Iterator[Candidate]:
        """Who may answer a request for `name` with a prompt of so many characters, in order. Raises HttpError 404."""
        slot = self.slot(name)
        reason = "default" if name is None else "name" if name == slot.name else "alias"
        short = slot.settings.short_prompts
        if short is not None and num_chars <= short.max_chars:
            slot, reason = self.slot(short.model), "short prompt"
        seen: set[str] = set()
        while slot.name not in seen:
            seen.add(slot.name)
            yield Candidate(slot, reason)
            if slot.settings.fallback is not None:
                slot, reason = self.slot(slot.settings.fallback), "fallback"

    # life

    async def load(self, name: str) -> None:
        """Load a model, unless it is. Raises HttpError 404, or what stopped it."""
        await self.slot(name).load()

    async def unload(self, name: str, timeout_s: float) -> Unloaded:
        """Unload a model: open requests have `timeout_s` to finish, the others are aborted. Raises HttpError 404."""
        return await self.slot(name).unload(timeout_s)

    async def load_first(self) -> None:
        """Load what is to be there from the start, all at once. Raises what stopped the first that failed."""
        first = [slot for slot in self.slots.values() if slot.settings.load is LoadWhen.START]
        results = await asyncio.gather(*(slot.load() for slot in first), return_exceptions=True)
        for slot, result in zip(first, results, strict=True):
            if isinstance(result, OctavoError):
                raise type(result)(f"model {slot.name}: {result}")
            if isinstance(result, BaseException):
                raise result

    async def supervise(self) -> None:
        """Look after all models until cancelled."""
        await asyncio.gather(*(slot.supervise() for slot in self.slots.values()))

    async def drain(self, timeout_s: float) -> None:
        """Unload everything for good: open requests have `timeout_s` to finish."""
        for slot in self.slots.values():
            slot.is_closing = True
        await asyncio.gather(*(slot.unload(timeout_s) for slot in self.slots.values()))

    async def close(self) -> None:
        """End every engine at once."""
        await asyncio.gather(*(slot.close() for slot in self.slots.values()))

    def check_serving(self) -> None:
        """Raise HttpError 503 while a model is on its way to its first answers, and if none answers or would load."""
        if not self._is_serving():
            states = {name: slot.state.value for name, slot in self.slots.items()}
            raise HttpError(
                503,
                "Not all models are loaded: " + ", ".join(f"{n} {s}" for n, s in states.items()),
                headers={"retry-after": "1"},
                extra={"models": states},
            )

    def _is_serving(self) -> bool:
        states = {slot.state for slot in self.slots.values()}
        is_starting = any(
            slot.settings.load is LoadWhen.START and slot.num_loads == 0
            for slot in self.slots.values()
        )
        is_closing = any(slot.is_closing for slot in self.slots.values())
        return (
            not is_starting
            and not is_closing
            and bool(states & {SlotState.READY, SlotState.SLEEPING})
        )
