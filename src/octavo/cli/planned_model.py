"""Which model a plan or a simulation is about: one that is here, the config of a hub id, or sizes given by flags."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from octavo.checkpoints.locate import HUB_ID, is_local, locate
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.machine import Machine
    from octavo.models.outline import ModelOutline

MODEL_HELP = (
    "A name (smollm2, gemma3-270m), a path (a folder with a config.json is enough), or a hub id."
)
DeviceOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="cpu is this machine; a100-40gb, h100-80gb, l4, ..."
    ),
]
MemoryOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", help="Memory to plan for instead, as in 24GiB or 24GB."
    ),
]
_UNITS: Mapping[str, int] = {
    "": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model by its numbers, under the names that a config.json gives them."""

    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """Those that were given."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


def outline_of(model: str | None, revision: str | None, sizes: Sizes) -> "ModelOutline":
    """Header and config of the model; of a hub id only its config.json is fetched. Raises what reading raises."""
    from octavo.models.outline import outline_of_numbers, read_outline  # numpy comes with it

    if sizes.given:
        if model is not None:
            raise ConfigError(f"give a model or sizes, not both; given: {model} and {sizes.given}")
        return outline_of_numbers(sizes.given)
    if model is None:
        raise ConfigError("give a model, or its sizes (--layers, --hidden-size, ...)")
    hub_id = None if is_local(model) else HUB_ID.fullmatch(model)
    if hub_id is None or hub_id["gguf"] is not None:
        return read_outline(locate(model, revision=revision, download=False))
    from octavo.checkpoints.hub import (
        fetch_config_from_hub,
    )  # the hub's client takes long to import

    return read_outline(fetch_config_from_hub(hub_id["repo"], revision=revision))


def machine_for(device: str, memory: str | None) -> "Machine":
    """The machine to plan for. Raises ConfigError."""
    from octavo.machine import inspect_machine
    from octavo.planning.devices import THIS_MACHINE, device_named

    machine = inspect_machine() if device == THIS_MACHINE else device_named(device).machine
    if memory is None:
        return machine
    num_bytes = parse_size(memory)
    return replace(machine, memory_total=num_bytes, memory_available=num_bytes)


def parse_size(text: str) -> int:
    """Bytes of 24GiB, 24GB, 24G (GiB) or a plain number. Raises ConfigError."""
    number = text.strip().rstrip("KMGTkiB")
    unit = text.strip()[len(number) :]
    try:
        value = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        value = 0.0
    if not 1 <= value < 1 << 60:
        raise ConfigError(f"--memory takes a size as in 24GiB or 24GB; given: {text}")
    return int(value)
