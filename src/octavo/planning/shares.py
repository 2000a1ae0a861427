"""Several models on one machine: which memory and which CPUs each of them gets, decided before any is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.config import EngineConfig
from octavo.errors import ConfigError, MemoryShortageError
from octavo.machine import Machine
from octavo.remedies import FactsOf, changed_flags, nearby
from octavo.resolve import GIB, MemoryPlan, ResolvedConfig, resolve, untold


@dataclass(frozen=True, slots=True)
class Member:
    """One of the models: its settings, and what they depend on."""

    name: str
    config: EngineConfig
    facts_of: FactsOf


@dataclass(frozen=True, slots=True)
class Share:
    """What one model gets. `config` fixes it: the model takes this much whatever is free when it is loaded."""

    name: str
    config: EngineConfig
    resolved: ResolvedConfig

    @property
    def memory(self) -> MemoryPlan:
        """Bytes."""
        return self.resolved.memory


def split_memory(members: Sequence[Member], machine: Machine) -> list[Share]:
    """A share for each model, so that all of them can be loaded at once.

    Weights, scratch and pools of given sizes come first; what is left, less the reserve, is divided evenly among the
    pools without a size, none beyond what its largest batch fills. Raises MemoryShortageError with the ledger of all
    models and settings that fit, and ConfigError naming the model.
    """
    try:
        return _split(members, machine)
    except MemoryShortageError as error:
        advice = _remedies(members, machine)
        fits = f"What fits: {'; or '.join(advice)}" if advice else "No setting near these fits."
        raise MemoryShortageError(f"{error}. {_needs(members, machine)}. {fits}") from None


def _split(members: Sequence[Member], machine: Machine) -> list[Share]:
    alone = [_resolved(member, machine) for member in members]
    fixed = sum(plan.memory.weights + plan.memory.scratch for plan in alone)
    given = [member.config.cache for member in members]
    is_open = [c.num_blocks is None and c.kv_cache_memory_bytes is None for c in given]
    pools = [0 if free else plan.memory.pool for free, plan in zip(is_open, alone, strict=True)]
    reserve = max(plan.memory.reserve for plan in alone)
    left = machine.memory_available - reserve - fixed - sum(pools)
    if left < 0:
        raise MemoryShortageError(
            f"{len(members)} models need {_gib(fixed + sum(pools))} before the pools without a size, "
            f"but {_gib(machine.memory_available - reserve)} are available after a reserve of {_gib(reserve)}"
        )
    wanted = [plan.memory.pool if free else 0 for free, plan in zip(is_open, alone, strict=True)]
    parts = _divided(left, wanted)
    return [
        _share(member, part if free else None, machine)
        for member, free, part in zip(members, is_open, parts, strict=True)
    ]


def _divided(total: int, wanted: Sequence[int]) -> list[int]:
    """Even parts, none above what is wanted; what one does not want goes to the others."""
    parts = [0] * len(wanted)
    by_size = sorted(range(len(wanted)), key=wanted.__getitem__)
    num_open = sum(want > 0 for want in wanted)
    for i in by_size:
        if wanted[i] > 0:
            parts[i] = min(wanted[i], total // num_open)
            total -= parts[i]
            num_open -= 1
    return parts


def _share(member: Member, pool: int | None, machine: Machine) -> Share:
    config = member.config
    if pool is not None:
        if pool < 1:
            raise MemoryShortageError(f"no memory is left for the pages of {member.name}")
        config = replace(config, cache=replace(config.cache, kv_cache_memory_bytes=pool))
    return Share(member.name, config, _resolved(replace(member, config=config), machine))


def _resolved(member: Member, machine: Machine) -> ResolvedConfig:
    try:
        return resolve(member.config, member.facts_of(member.config), machine, untold)
    except ConfigError as error:
        raise type(error)(f"{member.name}: {error}") from None


def _needs(members: Sequence[Member], machine: Machine) -> str:
    """What there is, and what each model needs before its first page."""
    lines = [
        f"available {_gib(machine.memory_available)} of {_gib(machine.memory_total)}",
        *(_need(member, machine) for member in members),
    ]
    return "; ".join(lines)


def _need(member: Member, machine: Machine) -> str:
    """As if the machine had any amount of memory: the sizes do not depend on it."""
    endless = replace(machine, memory_total=1 << 60, memory_available=1 << 60)
    memory = _resolved(member, endless).memory
    cache = member.config.cache
    has_size = cache.num_blocks is not None or cache.kv_cache_memory_bytes is not None
    pool = f", pages {_gib(memory.pool)}" if has_size else ""
    return f"{member.name}: weights {_gib(memory.weights)}, scratch {_gib(memory.scratch)}{pool}"


def _remedies(members: Sequence[Member], machine: Machine) -> list[str]:
    """The settings nearest to these that fit together: each tried, none guessed; at last, fewer models."""
    for changed in zip(*(nearby(member.config) for member in members), strict=True):
        tried = [replace(m, config=config) for m, config in zip(members, changed, strict=True)]
        shares = _if_fits(tried, machine)
        if shares is not None:
            return [", ".join(_flags(share) for share in shares)]
    found = []
    for i, member in enumerate(members):
        others = [*members[:i], *members[i + 1 :]]
        if others and _if_fits(others, machine) is not None:
            found.append(f"all but {member.name}")
    return found


def _if_fits(members: Sequence[Member], machine: Machine) -> list[Share] | None:
    try:
        return _split(members, machine)
    except ConfigError:
        return None


def _flags(share: Share) -> str:
    cache = replace(share.config.cache, kv_cache_memory_bytes=share.memory.pool, num_blocks=None)
    return " ".join([f"{share.name}:", *changed_flags(replace(share.config, cache=cache))])


@dataclass(frozen=True, slots=True)
class CpuShare:
    """What one engine computes with. `cpus` is None where engines have to share cores: the system divides them."""

    num_threads: int
    cpus: tuple[int, ...] | None


def split_cpus(
    wanted: Mapping[str, int | None], cores: Sequence[tuple[int, ...]], num_threads: int
) -> dict[str, CpuShare]:
    """Threads for each model, on cores of its own if there are enough.

    `wanted`: threads by model, None for an even part of what the others leave, at least one. `cores`: the logical CPUs
    of each physical core. `num_threads`: what the machine can keep busy in all.
    """
    given = sum(count for count in wanted.values() if count is not None)
    names = [name for name, count in wanted.items() if count is None]
    left = max(0, num_threads - given)
    threads = {name: count for name, count in wanted.items() if count is not None}
    for i, name in enumerate(names):
        threads[name] = max(1, left // len(names) + (i < left % len(names)))
    if sum(threads.values()) > min(num_threads, len(cores)):
        return {name: CpuShare(threads[name], None) for name in wanted}
    shares, rest = {}, iter(cores)
    for name in wanted:
        own = [next(rest) for _ in range(threads[name])]
        shares[name] = CpuShare(threads[name], tuple(cpu for core in own for cpu in core))
    return shares


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
