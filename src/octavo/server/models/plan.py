"""What each model of a server gets of the machine, decided and checked before any engine is started."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.checkpoints.locate import locate
from octavo.config import EngineConfig
from octavo.engine.build import facts_of
from octavo.errors import CheckpointError
from octavo.machine import Machine, allowed_cores, inspect_machine
from octavo.models.model import load_model
from octavo.planning.shares import CpuShare, Member, Share, split_cpus, split_memory
from octavo.resolve import ModelFacts
from octavo.server.models.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class ModelsPlan:
    """The models with settings that leave nothing to what happens to be free when they are loaded."""

    models: tuple[ModelSettings, ...]
    memory: tuple[Share, ...]
    cpus: dict[str, CpuShare]


def plan_models(models: Sequence[ModelSettings], machine: Machine | None = None) -> ModelsPlan:
    """Divide memory and cores. Raises CheckpointError naming the model, ConfigError, MemoryShortageError."""
    machine = inspect_machine() if machine is None else machine
    threads = {model.name: model.engine.num_threads for model in models}
    cpus = split_cpus(threads, allowed_cores(), machine.num_threads)
    members = [_member(model, cpus[model.name]) for model in models]
    shares = split_memory(members, machine)
    settled = tuple(
        replace(model, engine=share.config) for model, share in zip(models, shares, strict=True)
    )
    return ModelsPlan(settled, tuple(shares), cpus)


def _member(settings: ModelSettings, cpus: CpuShare) -> Member:
    given = settings.engine.model
    path = locate(given.model, revision=given.revision)
    try:
        model = load_model(path)
    except CheckpointError as error:
        raise type(error)(f"model {settings.name}: {error}") from error
    config = replace(
        settings.engine,
        model=replace(given, model=str(path), revision=None),
        num_threads=cpus.num_threads,
        cpus=cpus.cpus,
    )

    def facts(tried: EngineConfig) -> ModelFacts:
        return facts_of(model, tried)

    return Member(settings.name, config, facts)
