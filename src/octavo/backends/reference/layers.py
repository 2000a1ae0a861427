"""The arithmetic of a decoder layer other than attention, each as its formula."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.models.spec import Activation, RopeSpec

Array = NDArray[np.floating[Any]]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True, dtype=x.dtype)
    result: Array = x / np.sqrt(mean_square + x.dtype.type(eps)) * weight
    return result


def rotate(heads: Array, positions: NDArray[np.int64], rope: RopeSpec) -> Array:
    """Turn the pairs (x[i], x[i + D/2]) of every head by position * inv_freq[i].

    heads [T, heads, D], positions [T]. Angles, sines and cosines are taken in float64.
    """
    angles = positions[:, None, None] * np.array(rope.inv_freq, dtype=np.float64)
    cos = (np.cos(angles) * rope.attention_factor).astype(heads.dtype)
    sin = (np.sin(angles) * rope.attention_factor).astype(heads.dtype)
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def activate(gate: Array, activation: Activation) -> Array:
    """The gate's activation, element by element."""
    one, half = gate.dtype.type(1), gate.dtype.type(0.5)
    if activation is Activation.SILU:
        with np.errstate(
            over="ignore"
        ):  # exp(-x) of a very negative x is infinite, and x / inf is 0
            silu: Array = gate / (one + np.exp(-gate))
        return silu
    cubic = gate + gate.dtype.type(0.044715) * gate * gate * gate
    gelu: Array = half * gate * (one + np.tanh(gate.dtype.type(np.sqrt(2 / np.pi)) * cubic))
    return gelu
