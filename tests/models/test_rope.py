"""Rope scalings against the tables that transformers makes, over sizes that the tiny models do not reach."""

from typing import Any

import numpy as np
import pytest

from octavo.models import rope
from octavo.models.fields import Fields

SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 500_000.0},
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
    {
        "rope_type": "yarn",
        "factor": 16.0,
        "attention_factor": 1.5,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
    },
    {"rope_type": "yarn", "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.3},
    {"rope_type": "yarn", "factor": 0.5, "original_max_position_embeddings": 32768},
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.filterwarnings("ignore")
def test_against_transformers(scaling: dict[str, Any], head_dim: int) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    params = {"rope_theta": 10_000.0} | scaling
    config = LlamaConfig(
        head_dim=head_dim, max_position_embeddings=131072, rope_parameters=dict(params)
    )
    expected = LlamaRotaryEmbedding(config)
    ours = rope.from_config(
        Fields(params, "config.json"), theta=1.0, head_dim=head_dim, max_len=131072
    )
    np.testing.assert_allclose(ours.inv_freq, expected.inv_freq.numpy(), rtol=2e-6)
    assert ours.attention_factor == pytest.approx(expected.attention_scaling)


def test_missing_yarn_factor_is_the_ratio_of_the_lengths() -> None:
    fields = Fields({"rope_type": "yarn", "original_max_position_embeddings": 1024}, "config.json")
    by_ratio = rope.from_config(fields, theta=1e4, head_dim=64, max_len=4096)
    assert by_ratio == rope.yarn(1e4, 64, factor=4.0, original_len=1024)
