"""From the command line to the machine that is simulated."""

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.flags import Settings
from octavo.cli.planned_model import Sizes, machine_for, outline_of
from octavo.cli.simulation.options import MachineOptions
from octavo.config import choice_of
from octavo.errors import ConfigError, MemoryShortageError

if TYPE_CHECKING:
    from octavo.planning.costs import CostModel
    from octavo.planning.model_numbers import ModelNumbers
    from octavo.planning.setups import MachineSetup, Policy
    from octavo.planning.swapping import SwapDisk

RESERVE_SHARE = 0.1
"""Of the memory, for a published model: what its activations and others take."""
SWAP_BANDWIDTH = 2.0
"""GB a second; of a fast disk."""
SETUP_FLAGS = (
    "--revision", "--dtype", "--max-model-len", "--num-blocks-override", "--kv-cache-memory-bytes",
    "--kv-cache-dtype", "--enable-prefix-caching", "--swap-space",
)  # fmt: skip
"""Flags of the engine that every simulation honours."""
STEP_FLAGS = ("--block-size", "--max-num-batched-tokens", "--max-num-seqs")
"""Those that a sweep varies."""


def setup_of(
    model: str | None, machine: MachineOptions, settings: Settings, policy_name: str = "paged"
) -> "MachineSetup":
    """The machine to simulate. Raises ConfigError, and MemoryShortageError where nothing fits."""
    from octavo.planning.model_numbers import PUBLISHED
    from octavo.planning.setups import MachineSetup, Policy

    policy = choice_of(Policy, "--policy", policy_name)
    config = settings.engine(model or "")
    if model is not None and model in PUBLISHED:
        numbers = PUBLISHED[model]
        free = machine_for(machine.device, machine.memory).memory_total * (1 - RESERVE_SHARE)
        num_slots = int(free - numbers.weight_bytes) // numbers.token_bytes
        max_model_len = min(config.model.max_model_len or numbers.max_model_len, num_slots)
        if num_slots < config.cache.block_size:
            raise MemoryShortageError(
                f"{numbers.name} takes {numbers.weight_bytes:,} bytes, and there are {free:,.0f}"
            )
    else:
        numbers, num_slots, max_model_len = _read(model, machine, settings)
    return MachineSetup(
        numbers,
        _costs(machine, numbers),
        num_slots,
        max_model_len,
        policy,
        config.cache.block_size,
        config.scheduler,
        prefix_caching=config.cache.prefix_caching and policy is Policy.PAGED,
        swap=_swap(machine, policy, config.cache.swap_space),
    )


def _swap(machine: MachineOptions, policy: "Policy", num_bytes: int) -> "SwapDisk | None":
    from octavo.planning.devices import GB
    from octavo.planning.setups import Policy
    from octavo.planning.swapping import SwapDisk

    bandwidth = machine.swap_bandwidth
    if num_bytes == 0:
        if bandwidth is not None:
            raise ConfigError("--swap-bandwidth has no effect without --swap-space: give both")
        return None
    if policy is not Policy.PAGED:
        raise ConfigError(f"--swap-space is for --policy paged; given: {policy.value}")
    if bandwidth is not None and bandwidth <= 0:
        raise ConfigError(f"--swap-bandwidth must be above 0; given: {bandwidth}")
    return SwapDisk(num_bytes, (bandwidth or SWAP_BANDWIDTH) * GB)


def _read(
    model: str | None, machine: MachineOptions, settings: Settings
) -> "tuple[ModelNumbers, int, int]":
    """Numbers, slots and longest sequence of a model that Octavo runs."""
    from octavo.engine.build import facts_of
    from octavo.planning.model_numbers import numbers_of
    from octavo.remedies import resolve_or_advise

    config = settings.engine(model or "")
    outline = outline_of(model, config.model.revision, Sizes())
    resolved = resolve_or_advise(
        config,
        lambda tried: facts_of(outline, tried),
        machine_for(machine.device, machine.memory),
    )
    numbers = numbers_of(
        model or outline.name,
        outline.spec,
        weight_bytes=resolved.memory.weights,
        kv_cache_dtype=resolved.kv_cache_dtype,
    )
    return numbers, resolved.num_blocks * resolved.block_size, resolved.max_model_len


def _costs(machine: MachineOptions, model: "ModelNumbers") -> "CostModel":
    from octavo.planning.costs import Roofline, read_costs
    from octavo.planning.devices import THIS_MACHINE, device_named

    if machine.costs is not None:
        return read_costs(Path(machine.costs))
    if machine.device == THIS_MACHINE:
        raise ConfigError(
            "what steps cost on this machine has to be measured: octavo bench profile --to costs.json, then "
            "--costs costs.json; or choose a --device with a data sheet"
        )
    return Roofline.of(model, device_named(machine.device))
