"""From the command line to a machine and a load."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.flags import Settings
from octavo.cli.planned_model import Sizes, machine_for, outline_of
from octavo.cli.terminal import note
from octavo.config import choice_of
from octavo.errors import ConfigError, MemoryShortageError

if TYPE_CHECKING:
    from octavo.planning.costs import CostModel
    from octavo.planning.model_numbers import ModelNumbers
    from octavo.planning.requests import SimRequest
    from octavo.planning.setups import MachineSetup
    from octavo.planning.workloads import Population

DEFAULT_RATE = 1.0
RESERVE_SHARE = 0.1
"""Of the memory, for a published model: what its activations and others take."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options say about the machine."""

    model: str | None
    device: str
    memory: str | None
    costs: Path | None
    policy: str


def setup_of(wanted: Wanted, settings: Settings) -> "MachineSetup":
    """The machine to simulate. Raises ConfigError, and MemoryShortageError where nothing fits."""
    from octavo.planning.model_numbers import PUBLISHED
    from octavo.planning.setups import MachineSetup, Policy

    policy = choice_of(Policy, "--policy", wanted.policy)
    config = settings.engine(wanted.model or "")
    if wanted.model is not None and wanted.model in PUBLISHED:
        model = PUBLISHED[wanted.model]
        free = machine_for(wanted.device, wanted.memory).memory_total * (1 - RESERVE_SHARE)
        num_slots = int(free - model.weight_bytes) // model.token_bytes
        max_model_len = min(config.model.max_model_len or model.max_model_len, num_slots)
        if num_slots < config.cache.block_size:
            raise MemoryShortageError(
                f"{model.name} takes {model.weight_bytes:,} bytes, and there are {free:,.0f}"
            )
    else:
        model, num_slots, max_model_len = _read(wanted, settings)
    return MachineSetup(
        model,
        _costs(wanted, model),
        num_slots,
        max_model_len,
        policy,
        config.cache.block_size,
        config.scheduler,
    )


def _read(wanted: Wanted, settings: Settings) -> "tuple[ModelNumbers, int, int]":
    """Numbers, slots and longest sequence of a model that Octavo runs."""
    from octavo.engine.build import facts_of
    from octavo.planning.model_numbers import numbers_of
    from octavo.remedies import resolve_or_advise

    config = settings.engine(wanted.model or "")
    outline = outline_of(wanted.model, config.model.revision, Sizes())
    resolved = resolve_or_advise(
        config,
        lambda tried: facts_of(outline, tried),
        machine_for(wanted.device, wanted.memory),
    )
    numbers = numbers_of(
        wanted.model or outline.name,
        outline.spec,
        weight_bytes=resolved.memory.weights,
        kv_cache_dtype=resolved.kv_cache_dtype,
    )
    return numbers, resolved.num_blocks * resolved.block_size, resolved.max_model_len


def _costs(wanted: Wanted, model: "ModelNumbers") -> "CostModel":
    from octavo.planning.costs import Roofline, read_costs
    from octavo.planning.devices import THIS_MACHINE, device_named

    if wanted.costs is not None:
        return read_costs(wanted.costs)
    if wanted.device == THIS_MACHINE:
        raise ConfigError(
            "what steps cost on this machine has to be measured: octavo bench profile --to costs.json, then "
            "--costs costs.json; or choose a --device with a data sheet"
        )
    return Roofline.of(model, device_named(wanted.device))


@dataclass(frozen=True, slots=True)
class WantedLoad:
    """What the options say about the load."""

    workload: str
    rate: float | None
    num_requests: int
    seed: int
    n: int = 1
    prefix_len: int = 0
    num_prefixes: int = 1
    turns: int = 1
    pause_s: float = 10.0

    def population(self) -> "Population":
        """Of a made-up load. Raises ConfigError."""
        from octavo.planning.workloads import population

        for name in ("n", "num_prefixes", "turns", "num_requests"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; given: {getattr(self, name)}")
        return replace(
            population(self.workload),
            n=self.n,
            prefix_len=self.prefix_len,
            num_prefixes=self.num_prefixes,
            turns=self.turns,
            pause_s=self.pause_s,
        )


def requests_of(load: WantedLoad, max_model_len: int) -> "list[SimRequest]":
    """The requests; those of a trace that do not fit the context are left out, and counted on stderr."""
    from octavo.planning.traces import at_rate, fitting, read_trace
    from octavo.planning.workloads import make_requests

    if load.rate is not None and not load.rate > 0:
        raise ConfigError(f"--rate must be above 0; given: {load.rate}")
    if not Path(load.workload).is_file():
        rate = DEFAULT_RATE if load.rate is None else load.rate
        return make_requests(
            load.population(), rate, load.num_requests, max_model_len=max_model_len, seed=load.seed
        )
    requests, num_left_out = fitting(read_trace(Path(load.workload)), max_model_len)
    if num_left_out:
        note(f"{num_left_out} requests are longer than {max_model_len} tokens and left out")
    if load.n != 1:
        requests = [replace(request, n=load.n) for request in requests]
    return requests if load.rate is None else at_rate(requests, load.rate, load.seed)
