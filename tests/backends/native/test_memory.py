"""What the plan really takes is what the footprint says: the ledger is not a guess."""

from pathlib import Path

import pytest

from octavo.backends.native.runner import NativeRunner
from octavo.models.footprint import block_bytes, scratch_bytes, weight_bytes
from octavo.models.model import load_model

pytestmark = pytest.mark.model


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_footprint(name: str, dtype: str, smollm2_path: Path, gemma_path: Path) -> None:
    model = load_model(smollm2_path if name == "smollm2" else gemma_path)
    kv_dtype = "float32" if dtype == "float32" else "bfloat16"
    runner = NativeRunner(
        model.spec,
        model.weights,
        num_blocks=400,
        block_size=32,
        dtype=dtype,
        kv_cache_dtype=kv_dtype,
        max_num_batched_tokens=1024,
        num_threads=2,
    )
    assert runner.weight_bytes == pytest.approx(weight_bytes(model.weights, dtype), rel=0.005)
    assert runner.pool_bytes == pytest.approx(
        400 * block_bytes(model.spec, 32, kv_dtype), abs=2**21
    )
    expected = scratch_bytes(model.spec, 1024, 2)
    assert 0.5 * expected < runner.scratch_bytes < 1.1 * expected + 20 * 2**21
    runner.close()
