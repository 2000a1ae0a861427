"""The arithmetic of a layer against other ways to write it, in float64."""

import math

import numpy as np
import pytest

from octavo.backends.reference.layers import activate, rms_norm, rotate
from octavo.models.spec import Activation, RopeSpec

X = np.linspace(-12, 12, 97)


def test_silu() -> None:
    expected = [x / (1 + math.exp(-x)) for x in X]
    np.testing.assert_allclose(activate(X, Activation.SILU), expected, rtol=1e-14)


def test_silu_of_extremes_is_quiet() -> None:
    values = activate(np.array([-3e38, 3e38, -200.0], np.float32), Activation.SILU)
    assert values.tolist() == [0, np.float32(3e38), 0]


def test_gelu_tanh() -> None:
    expected = [
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) for x in X
    ]
    np.testing.assert_allclose(activate(X, Activation.GELU_TANH), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_rms_norm(precision: type[np.float32] | type[np.float64]) -> None:
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(3, 2, 50)), random.normal(size=50)
    expected = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 0.1) * weight
    normed = rms_norm(x.astype(precision), weight.astype(precision), 0.1)
    assert normed.dtype == precision
    np.testing.assert_allclose(normed, expected, rtol=1e-5 if precision is np.float32 else 1e-14)


def test_rotation_is_a_product_of_complex_numbers() -> None:
    heads = np.random.default_rng(0).normal(size=(4, 3, 8))
    positions = np.array([0, 1, 77, 100_000])
    rope = RopeSpec((1.0, 0.3, 0.01, 1e-4), attention_factor=1.25)
    pairs = heads[..., :4] + 1j * heads[..., 4:]
    turned = pairs * np.exp(1j * positions[:, None, None] * np.array(rope.inv_freq)) * 1.25
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(rotate(heads, positions, rope), expected, rtol=1e-12, atol=1e-14)
