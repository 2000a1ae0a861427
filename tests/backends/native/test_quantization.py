"""Weights quantized when they are loaded, and the fp8 cache: how far their answers are from bfloat16's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.core.sampling_params import SamplingParams
from octavo.evaluation.forced import forced_logits
from octavo.models.footprint import weight_bytes
from octavo.models.model import Model, load_model
from support.backends import make_runner, prompt_logits
from support.bf16_folder import bf16_folder
from support.golden import SMOLLM2, golden_cases
from support.recorder import serve
from support.tiny_models import TINY, prompt, tiny_folder

CASES = (0, 4, 9, 13, 14)
"""Of the golden file: short ones, a chat, and one of 513 prompt tokens."""


def divergence(exact: NDArray[Any], other: NDArray[Any]) -> float:
    """Mean KL(exact || other) over rows of logits, nat."""
    p, q = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (exact, other))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def golden_logits(model: Model, **mode: Any) -> NDArray[Any]:
    """Teacher-forced over the golden continuations, [steps, V]."""
    runner = make_runner("native", model, num_blocks=60, **mode)
    cases = [golden_cases(SMOLLM2)[i] for i in CASES]
    rows = [forced_logits(runner, c.prompt_token_ids, c.greedy_token_ids) for c in cases]
    runner.close()
    return np.concatenate(rows).astype(np.float64)


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Model:
    return load_model(bf16_folder(smollm2_path))


@pytest.fixture(scope="module")
def bfloat16(model: Model) -> NDArray[Any]:
    return golden_logits(model, dtype="auto", kv_cache_dtype="bfloat16")


@pytest.mark.model
@pytest.mark.parametrize(
    ("dtype", "kv_cache_dtype", "bound"),
    [("int8", "bfloat16", 0.03), ("int4", "bfloat16", 0.03), ("auto", "fp8", 0.03)],
)
def test_divergence_from_bfloat16(
    model: Model, bfloat16: NDArray[Any], dtype: str, kv_cache_dtype: str, bound: float
) -> None:
    got = golden_logits(model, dtype=dtype, kv_cache_dtype=kv_cache_dtype)
    assert 1e-6 < divergence(bfloat16, got) < bound


@pytest.mark.model
@pytest.mark.parametrize(("dtype", "share"), [("int8", 0.51), ("int4", 0.38)])
def test_weights_take_less_memory(model: Model, dtype: str, share: float) -> None:
    runner = make_runner("native", model, num_blocks=2, dtype=dtype, max_num_batched_tokens=16)
    taken = runner.weight_bytes  # type: ignore[attr-defined]
    assert taken == pytest.approx(weight_bytes(model.weights, dtype), rel=0.005)
    assert taken < share * weight_bytes(model.weights, "bfloat16")
    runner.close()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("name", list(TINY))
def test_every_family(name: str, dtype: str) -> None:
    """Random weights magnify every rounding, so these bounds only tell a quantized model from another one."""
    model = load_model(tiny_folder(name))
    ids = prompt(40)
    exact = make_runner("native", model, num_blocks=8)
    wanted = prompt_logits(exact, ids).astype(np.float64)
    runner = make_runner("native", model, num_blocks=8, dtype=dtype, kv_cache_dtype="bfloat16")
    got = prompt_logits(runner, ids).astype(np.float64)
    assert np.isfinite(got).all()
    shuffled = np.roll(wanted, 1, axis=0)
    assert divergence(wanted, got) < 0.3 * divergence(wanted, shuffled)
    exact.close()
    runner.close()


def test_sampling_from_int8() -> None:
    model = load_model(tiny_folder("llama"))
    runner = make_runner("native", model, num_blocks=20, dtype="int8", kv_cache_dtype="fp8")
    params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
    outcome = serve(runner, [prompt(20)], params)[0]
    assert [len(tokens) for tokens in outcome.tokens] == [12]
    runner.close()
