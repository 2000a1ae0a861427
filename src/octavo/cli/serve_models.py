"""`octavo serve` with several models: what it prints, and the call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from octavo.cli.memory_text import counted, memory_lines
from octavo.cli.pull import with_fetched_model
from octavo.config import ServerConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.server.models.plan import ModelsPlan
    from octavo.server.models.registry import ModelRegistry
    from octavo.server.models.settings import ModelSettings


def serve_several(models: "Sequence[ModelSettings]", server: ServerConfig) -> int:
    """Serve them until a signal; the exit code. Raises ConfigError for flags that name or shape one model only."""
    # The command line is read before anything that only serving needs is imported.
    from octavo.server.models.serve import serve_models
    from octavo.server.models.settings import check_models

    if server.served_model_names:
        raise ConfigError(
            "--served-model-name is for one model: give each of several its name, and `aliases` in --model-config"
        )
    if server.api_server_count > 1:
        raise ConfigError(
            "several models have one front end, which loads and unloads them; "
            f"given: --api-server-count {server.api_server_count}"
        )
    check_models(models)
    fetched = [replace(model, engine=with_fetched_model(model.engine)) for model in models]
    return serve_models(fetched, server, on_plan=_show_plan, on_ready=_announce)


def _show_plan(plan: "ModelsPlan") -> None:
    """What each model gets of memory and processors."""
    for share in plan.memory:
        resolved = share.resolved
        cpus = plan.cpus[share.name]
        own = "shared with others" if cpus.cpus is None else f"CPUs {_listed(cpus.cpus)}"
        typer.echo(
            f"{share.name}: {resolved.dtype} weights, {resolved.kv_cache_dtype} cache, "
            f"{counted(cpus.num_threads, 'thread')}, {own}"
        )
        lines = memory_lines(
            [
                (name, size)
                for name, size in share.memory.lines
                if name not in ("available", "reserve")
            ],
            num_blocks=resolved.num_blocks,
            block_size=resolved.block_size,
            max_model_len=resolved.max_model_len,
        )
        for line in lines:
            typer.echo(f"  {line}")


def _announce(url: str, registry: "ModelRegistry") -> None:
    typer.echo(f"octavo serves {counted(len(registry.slots), 'model')} on {url}")
    for name, slot in registry.slots.items():
        also = f", also {', '.join(slot.settings.aliases)}" if slot.settings.aliases else ""
        typer.echo(f"  {name}: {slot.state.value}{also}")


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))
