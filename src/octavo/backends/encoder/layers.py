"""The functions of an encoder's layers, float32 in and out."""

import math

import numpy as np

from octavo.models.encoder import Floats

_P = 0.3275911
_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7 of erf."""


def layer_norm(x: Floats, weight: Floats, bias: Floats, eps: float) -> Floats:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis."""
    mean = x.mean(axis=-1, keepdims=True, dtype=np.float32)
    centred = x - mean
    variance = (centred * centred).mean(axis=-1, keepdims=True, dtype=np.float32)
    result: Floats = centred / np.sqrt(variance + np.float32(eps)) * weight + bias
    return result


def gelu(x: Floats) -> Floats:
    """x times the standard normal distribution function of x."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = np.float32(1.0) / (np.float32(1.0) + np.float32(_P) * z)
    poly = np.zeros_like(t)
    for coefficient in reversed(_A):
        poly = (poly + np.float32(coefficient)) * t
    erf = np.copysign(np.float32(1.0) - poly * np.exp(-z * z), x)
    result: Floats = np.float32(0.5) * x * (np.float32(1.0) + erf)
    return result


def attend(q: Floats, k: Floats, v: Floats, num_heads: int) -> Floats:
    """Every token attends to every token: [T, H*D] each -> [T, H*D]."""
    num_tokens, size = q.shape
    heads = [part.reshape(num_tokens, num_heads, -1).swapaxes(0, 1) for part in (q, k, v)]
    scores = heads[0] @ heads[1].swapaxes(1, 2) * np.float32((size // num_heads) ** -0.5)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = scores / scores.sum(axis=-1, keepdims=True)
    result: Floats = (weights @ heads[2]).swapaxes(0, 1).reshape(num_tokens, size)
    return result
