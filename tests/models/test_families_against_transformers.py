"""Tiny random models of every family: the logits of every position equal those of transformers."""

import numpy as np
import pytest

from octavo.models.model import load_model
from support.backends import BACKENDS, make_runner, prompt_logits
from support.tiny_models import TINY, oracle_logits, prompt, tiny_folder

LENGTHS = (1, 15, 16, 17, 127, 128, 129, 511, 512, 513, 1500)
TOLERANCE = 1e-4
"""Of the largest logit; float32 in another order of summation stays far below."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TINY)
def test_logits_equal_transformers(backend: str, name: str) -> None:
    runner = make_runner(backend, load_model(tiny_folder(name)), num_blocks=120)
    for num_tokens in LENGTHS:
        expected = oracle_logits(name, num_tokens)
        logits = prompt_logits(runner, prompt(num_tokens), seed=num_tokens)
        worst = np.abs(logits - expected).max() / np.abs(expected).max()
        assert worst < TOLERANCE, f"{name} with {num_tokens} tokens: {worst}"
    runner.close()
