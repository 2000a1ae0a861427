"""What only the reference has: a choice of precision, and errors for plans that cannot be."""

from array import array

import numpy as np
import pytest

from octavo.backends.reference.runner import ReferenceRunner
from octavo.models.model import load_model
from support.backends import plan_of, prompt_logits, seq_step
from support.tiny_models import TINY, prompt, tiny_folder


@pytest.mark.parametrize("name", TINY)
def test_float64_agrees_with_float32(name: str) -> None:
    model = load_model(tiny_folder(name))
    exact, single = (
        ReferenceRunner(
            model.spec, model.weights, num_blocks=10, block_size=16, precision=precision
        )
        for precision in (np.float64, np.float32)
    )
    expected = prompt_logits(exact, prompt(130))
    assert expected.dtype == np.float64
    logits = prompt_logits(single, prompt(130))
    assert logits.dtype == np.float32
    # The rounding of float32 through a few layers of sums of a hundred numbers.
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("token_ids", "table", "problem"),
    [
        ([256], [0], "a token id is not from 0 to 255"),
        ([-1], [0], "a token id is not from 0 to 255"),
        ([5] * 17, [0], "sequence 0 needs 2 blocks; its table has 1"),
        ([5], [4], "sequence 0 has a block id that is not from 0 to 3"),
        ([5], [-1], "sequence 0 has a block id that is not from 0 to 3"),
    ],
)
def test_plans_that_cannot_be(token_ids: list[int], table: list[int], problem: str) -> None:
    model = load_model(tiny_folder("llama"))
    runner = ReferenceRunner(model.spec, model.weights, num_blocks=4, block_size=16)
    with pytest.raises(ValueError, match=problem):
        runner.run(plan_of(seq_step(token_ids, array("i", table))))
