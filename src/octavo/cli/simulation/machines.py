"""From the command line to the machine that is simulated."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.flags import Settings
from octavo.cli.planned_model import Sizes, machine_for, outline_of
from octavo.cli.simulation.options import DEFAULT_BLOCK_SIZE, MachineOptions
from octavo.config import BLOCK_SIZES, EngineConfig, SchedulerConfig, choice_of
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
    "--kv-cache-dtype", "--enable-prefix-caching", "--target-itl-ms", "--swap-space",
)  # fmt: skip
"""Flags of the engine that every simulation honours."""
STEP_FLAGS = ("--max-num-batched-tokens", "--max-num-seqs")
"""Those that a sweep varies."""


def setup_of(
    model: str | None,
    machine: MachineOptions,
    settings: Settings,
    *,
    block_size: int = DEFAULT_BLOCK_SIZE,
    policy_name: str = "paged",
) -> "MachineSetup":
    """The machine to simulate. Raises ConfigError, and MemoryShortageError where nothing fits."""
    from octavo.planning.model_numbers import PUBLISHED
    from octavo.planning.setups import MachineSetup, Policy

    policy = choice_of(Policy, "--policy", policy_name)
    config = _with_blocks(settings.engine(model or ""), block_size)
    if policy is not Policy.PAGED:
        _check_effects(policy, config, block_size)
    if model is not None and model in PUBLISHED:
        numbers = PUBLISHED[model]
        free = machine_for(machine.device, machine.memory).memory_total * (1 - RESERVE_SHARE)
        num_slots = int(free - numbers.weight_bytes) // numbers.token_bytes
        max_model_len = min(config.model.max_model_len or numbers.max_model_len, num_slots)
        if num_slots < block_size:
            raise MemoryShortageError(
                f"{numbers.name} takes {numbers.weight_bytes:,} bytes, and there are {free:,.0f}"
            )
    else:
        numbers, num_slots, max_model_len = _read(model, machine, config)
    return MachineSetup(
        numbers,
        _costs(machine, numbers),
        num_slots,
        max_model_len,
        policy,
        block_size,
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


def _check_effects(policy: "Policy", config: EngineConfig, block_size: int) -> None:
    """What only pages have is refused with the others. Raises ConfigError."""
    from octavo.planning.setups import Policy

    asked, usual = config.scheduler, SchedulerConfig()
    given = {
        "--block-size": block_size != DEFAULT_BLOCK_SIZE,
        "--max-num-batched-tokens": asked.max_num_batched_tokens != usual.max_num_batched_tokens,
        "--target-itl-ms": asked.target_itl_ms is not None,
        "--max-num-seqs": policy is Policy.STATIC and asked.max_num_seqs != usual.max_num_seqs,
    }
    for flag, is_given in given.items():
        if is_given:
            raise ConfigError(f"{flag} has no effect with --policy {policy.value}")


def _with_blocks(config: EngineConfig, block_size: int) -> EngineConfig:
    """Blocks of a size that no kernel reads are cut from the memory of those that it does. Raises ConfigError."""
    if block_size < 1:
        raise ConfigError(f"--block-size must be at least 1; given: {block_size}")
    if block_size in BLOCK_SIZES:
        return replace(config, cache=replace(config.cache, block_size=block_size))
    if config.cache.num_blocks is not None:
        sizes = ", ".join(map(str, BLOCK_SIZES))
        raise ConfigError(
            f"--num-blocks-override counts pages of {sizes} tokens; with others give --kv-cache-memory-bytes; "
            f"given: --block-size {block_size}"
        )
    return config


def _read(
    model: str | None, machine: MachineOptions, config: EngineConfig
) -> "tuple[ModelNumbers, int, int]":
    """Numbers, slots and longest sequence of a model that Octavo runs."""
    from octavo.engine.build import facts_of
    from octavo.planning.model_numbers import numbers_of
    from octavo.remedies import resolve_or_advise

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
