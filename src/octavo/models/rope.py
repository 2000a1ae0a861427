"""Rotary embeddings resolved to numbers: the base frequencies and the scalings of long contexts."""

import math
from collections.abc import Sequence

from octavo.models.fields import Fields
from octavo.models.spec import RopeSpec

DEFAULT_THETA = 10_000.0
SUPPORTED_TYPES = ("default", "linear", "llama3", "yarn")
_KEYS = frozenset((
    "rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings",
    "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor",
    "mscale", "mscale_all_dim", "truncate", "partial_rotary_factor", "finetuned",
))  # fmt: skip
"""All that such an object may hold. Others, and ropes by layer type, are refused."""


def base_frequencies(theta: float, head_dim: int) -> list[float]:
    """theta ** (-2i / D) for each pair i, radians per position."""
    return [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]


def plain(theta: float, head_dim: int) -> RopeSpec:
    """No scaling."""
    return RopeSpec(tuple(base_frequencies(theta, head_dim)))


def linear(theta: float, head_dim: int, factor: float) -> RopeSpec:
    """Positions divided by `factor`."""
    return RopeSpec(tuple(f / factor for f in base_frequencies(theta, head_dim)))


def divided(theta: float, head_dim: int, divisors: Sequence[float]) -> RopeSpec:
    """Each frequency divided by its own factor (GGUF's rope_freqs tensor)."""
    frequencies = base_frequencies(theta, head_dim)
    return RopeSpec(tuple(f / d for f, d in zip(frequencies, divisors, strict=True)))


def llama3(
    theta: float, head_dim: int, *, factor: float, low: float, high: float, original_len: int
) -> RopeSpec:
    """Llama 3.1: waves longer than original_len / low are divided by `factor`, shorter than
    original_len / high are kept, and between them the two are blended."""

    def scale(frequency: float) -> float:
        turns = original_len * frequency / (2 * math.pi)
        if turns > high:
            return frequency
        if turns < low:
            return frequency / factor
        kept = (turns - low) / (high - low)
        return (1 - kept) * frequency / factor + kept * frequency

    return RopeSpec(tuple(scale(f) for f in base_frequencies(theta, head_dim)))


def yarn(
    theta: float,
    head_dim: int,
    *,
    factor: float,
    original_len: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    attention_factor: float | None = None,
) -> RopeSpec:
    """YaRN: pairs that turn more than `beta_fast` times in the original length are kept, those that turn
    less than `beta_slow` times are divided by `factor`, with a ramp between, linear in the pair's index."""

    def pair_that_turns(turns: float) -> float:
        return head_dim * math.log(original_len / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = last - first or 0.001

    def scale(i: int, frequency: float) -> float:
        divided_part = min(1.0, max(0.0, (i - first) / width))
        return frequency / factor * divided_part + frequency * (1 - divided_part)

    frequencies = enumerate(base_frequencies(theta, head_dim))
    if attention_factor is None:
        attention_factor = yarn_magnitude(factor)
    return RopeSpec(tuple(scale(i, f) for i, f in frequencies), attention_factor)


def yarn_magnitude(factor: float, multiplier: float = 1.0) -> float:
    """YaRN's growth of queries and keys with the logarithm of the context's growth."""
    return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0


def from_config(params: Fields, *, theta: float, head_dim: int, max_len: int) -> RopeSpec:
    """The rope of one `rope_parameters` or `rope_scaling` object of config.json.

    `theta` holds where the object has no `rope_theta`; `max_len` is max_position_embeddings. Frequencies that depend on the length of the
    sequence (dynamic, longrope) are refused: keys are cached with their rotation.
    """
    kind = params.text("rope_type", params.text("type", "default"))
    for key in params.keys():  # noqa: SIM118  (Fields is no mapping)
        if key not in _KEYS:
            params.fail(key, "this key may change the model's answers and is not supported")
    theta = params.positive("rope_theta", theta)
    params.only("partial_rotary_factor", 1, 1.0)
    if kind == "default":
        return plain(theta, head_dim)
    if kind == "linear":
        return linear(theta, head_dim, params.positive("factor"))
    original_len = params.size("original_max_position_embeddings", max_len)
    if kind == "llama3":
        return llama3(
            theta,
            head_dim,
            factor=params.positive("factor"),
            low=params.positive("low_freq_factor"),
            high=params.positive("high_freq_factor"),
            original_len=original_len,
        )
    if kind == "yarn":
        return _yarn_from_config(params, theta, head_dim, max_len, original_len)
    return params.fail(
        "rope_type", f"{kind!r} is not supported; supported are {', '.join(SUPPORTED_TYPES)}"
    )


def _yarn_from_config(
    params: Fields, theta: float, head_dim: int, max_len: int, original_len: int
) -> RopeSpec:
    factor = params.positive("factor", max_len / original_len)
    attention_factor = None
    if params.has("attention_factor"):
        attention_factor = params.positive("attention_factor")
    elif params.raw("mscale") and params.raw("mscale_all_dim"):
        numerator = yarn_magnitude(factor, params.positive("mscale"))
        attention_factor = numerator / yarn_magnitude(factor, params.positive("mscale_all_dim"))
    return yarn(
        theta,
        head_dim,
        factor=factor,
        original_len=original_len,
        beta_fast=params.positive("beta_fast", 32.0),
        beta_slow=params.positive("beta_slow", 1.0),
        truncate=params.flag("truncate", True),
        attention_factor=attention_factor,
    )
