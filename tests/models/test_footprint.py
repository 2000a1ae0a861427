"""Bytes of blocks, weights and scratch memory, against sums by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from octavo.models.footprint import block_bytes, scratch_bytes, weight_bytes
from octavo.models.model import load_model
from support.bf16_folder import bf16_folder
from support.tiny_models import tiny_folder


@pytest.mark.model
def test_smollm2(smollm2_path: Path) -> None:
    model = load_model(smollm2_path)
    assert block_bytes(model.spec, 16, "float32") == 2 * 30 * 3 * 64 * 16 * 4
    assert block_bytes(model.spec, 32, "bfloat16") == 2 * 30 * 3 * 64 * 32 * 2
    assert block_bytes(model.spec, 16, "int8") == 30 * 3 * (2 * 64 + 2 * 4) * 16
    assert block_bytes(model.spec, 16, "fp8") == 30 * 3 * 2 * 64 * 16
    numbers = 49152 * 576 + 30 * (576 * 576 * 2 + 192 * 576 * 2 + 3 * 1536 * 576)
    norms = 61 * 576
    assert weight_bytes(model.weights, "float32") == 4 * (numbers + norms)
    assert weight_bytes(model.weights, "bfloat16") == 2 * numbers + 4 * norms
    # Of the file's bytes all but its header and padding.
    assert 0.97 < weight_bytes(model.weights, "auto") / smollm2_path.stat().st_size < 1


def test_heads_are_padded_to_whole_vectors() -> None:
    spec = load_model(tiny_folder("mistral")).spec
    assert spec.head_dim == 24
    assert block_bytes(spec, 16, "float32") == block_bytes(
        replace(spec, head_dim=32), 16, "float32"
    )


@pytest.mark.model
def test_smollm2_quantized_at_load(smollm2_path: Path) -> None:
    weights = load_model(bf16_folder(smollm2_path)).weights
    layer_numbers = 30 * (576 * 576 * 2 + 192 * 576 * 2 + 3 * 1536 * 576)
    norms = 4 * 61 * 576
    rows = 49152 + 30 * (576 + 192 + 192 + 576 + 1536 + 1536 + 576)
    assert weight_bytes(weights, "int8") == 49152 * 576 + layer_numbers + 4 * rows + norms
    assert weight_bytes(weights, "int4") == 49152 * 576 * 17 // 16 + layer_numbers * 5 // 8 + norms


def test_a_head_of_its_own_counts() -> None:
    tied, untied = (load_model(tiny_folder(name)) for name in ("qwen2", "qwen2-yarn-rope"))
    difference = weight_bytes(untied.weights, "float32") - weight_bytes(tied.weights, "float32")
    assert difference == 256 * 64 * 4


def test_scratch_grows_with_tokens_and_threads() -> None:
    spec = load_model(tiny_folder("llama")).spec
    base = scratch_bytes(spec, 128, 1)
    assert scratch_bytes(spec, 129, 1) - base == 4 * (3 * 64 + 2 * 4 * 16 + 96)
    assert scratch_bytes(spec, 128, 2) - base == 4 * 3 * 256
