"""How far each mode may be from float32. A mode that is farther has no speed worth printing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from octavo.evaluation.accuracy import Divergence


@dataclass(frozen=True, slots=True, order=True)
class Mode:
    """How weights and cache are held. Names are those of the command line."""

    weights: str
    """A choice of --dtype or --quantization."""
    kv_cache_dtype: str


EXACT = Mode("float32", "float32")
"""What all others are measured against."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest mean divergence from float32, in nat, that a mode may have on any text."""

    mean_kl: float
    above: str | None = None
    """If given, the divergence of these weights (with the same cache) may come on top."""


CACHE_BOUNDS: Mapping[str, Bound] = {
    "float32": Bound(0.01),
    "bfloat16": Bound(0.01),
    "int8": Bound(0.015),
}
"""For weights as the file has them, and rounded to bfloat16 or not."""
WEIGHT_BOUNDS: Mapping[str, Bound | None] = {
    "int8": Bound(0.03, above="bfloat16"),
    "int4": None,
}
"""For weights that are quantized here. None: whatever it costs is stated."""


def bound_of(mode: Mode) -> Bound | None:
    """None: there is no bound, the figures speak for themselves."""
    if mode.weights in WEIGHT_BOUNDS:
        return WEIGHT_BOUNDS[mode.weights]
    return CACHE_BOUNDS.get(mode.kv_cache_dtype)


def with_baselines(modes: Iterable[Mode]) -> list[Mode]:
    """The modes, each once, preceded by those that their bounds refer to."""
    found: dict[Mode, None] = {}
    for mode in modes:
        bound = bound_of(mode)
        if bound is not None and bound.above is not None:
            found.setdefault(Mode(bound.above, mode.kv_cache_dtype))
        found.setdefault(mode)
    return list(found)


def limit_of(mode: Mode, found: Mapping[Mode, Divergence]) -> float | None:
    """The largest mean divergence that the mode may have on a text, in nat; `found`: what was measured on it."""
    bound = bound_of(mode)
    if bound is None:
        return None
    if bound.above is None:
        return bound.mean_kl
    return bound.mean_kl + found[Mode(bound.above, mode.kv_cache_dtype)].mean_kl


def is_within(divergence: Divergence, limit: float | None) -> bool:
    """Whether the bound holds; a divergence that is no number is within none."""
    return divergence.mean_kl <= (float("inf") if limit is None else limit)
