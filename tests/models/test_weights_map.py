"""A model that loads is the model of the file: missing, surplus and misshapen tensors are errors by name."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from octavo.checkpoints.checkpoint import Checkpoint, open_checkpoint
from octavo.checkpoints.quants import QuantType
from octavo.errors import CheckpointError
from octavo.models.families import read_spec
from octavo.models.model import load_model
from octavo.models.weights_map import load_weights
from support.tiny_gguf import save_values, write_gguf
from support.tiny_models import tiny_folder

Values = dict[str, NDArray[Any]]


def edited(name: str, folder: Path, edit: Callable[[Values], object]) -> Path:
    """A tiny model with other tensors."""
    values = load_file(tiny_folder(name) / "model.safetensors")
    edit(values)
    save_values(values, tiny_folder(name), folder)
    return folder


LAYER = "model.layers.1."
DAMAGES: dict[str, tuple[str, Callable[[Values], object], str]] = {
    "matrix missing": (
        "llama",
        lambda v: v.pop(LAYER + "mlp.up_proj.weight"),
        r"model: tensor model.layers.1.mlp.up_proj.weight \[96, 64\] is missing",
    ),
    "norm missing": (
        "llama",
        lambda v: v.pop("model.norm.weight"),
        r"tensor model.norm.weight \[64\] is missing",
    ),
    "bias missing": (
        "qwen2",
        lambda v: v.pop(LAYER + "self_attn.k_proj.bias"),
        r"tensor model.layers.1.self_attn.k_proj.bias \[32\] is missing",
    ),
    "q_norm missing": (
        "qwen3",
        lambda v: v.pop(LAYER + "self_attn.q_norm.weight"),
        r"tensor model.layers.1.self_attn.q_norm.weight \[32\] is missing",
    ),
    "transposed": (
        "llama",
        lambda v: v.update({LAYER + "mlp.up_proj.weight": np.zeros((64, 96), np.float32)}),
        r"model.safetensors: tensor model.layers.1.mlp.up_proj.weight must have the shape \[96, 64\]; "
        r"given: \[64, 96\]",
    ),
    "a row too many": (
        "llama",
        lambda v: v.update({"model.embed_tokens.weight": np.zeros((257, 64), np.float32)}),
        r"tensor model.embed_tokens.weight must have the shape \[256, 64\]; given: \[257, 64\]",
    ),
    "a bias that the spec does not have": (
        "llama",
        lambda v: v.update({LAYER + "self_attn.q_proj.bias": np.zeros(64, np.float32)}),
        r"model.safetensors: tensor model.layers.1.self_attn.q_proj.bias is not part of a llama model",
    ),
    "a layer that the spec does not have": (
        "llama",
        lambda v: v.update({"model.layers.3.input_layernorm.weight": np.zeros(64, np.float32)}),
        r"tensor model.layers.3.input_layernorm.weight is not part of a llama model",
    ),
    "a tensor of an adapter": (
        "llama",
        lambda v: v.update({LAYER + "self_attn.q_proj.lora_A": np.zeros((8, 64), np.float32)}),
        r"tensor model.layers.1.self_attn.q_proj.lora_A is not part of",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders(damage: str, tmp_path: Path) -> None:
    name, edit, expected = DAMAGES[damage]
    with pytest.raises(CheckpointError, match=expected):
        load_model(edited(name, tmp_path / "model", edit))


@pytest.mark.parametrize(
    "buffer",
    ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"],
)
def test_rotary_buffers_are_harmless(buffer: str, tmp_path: Path) -> None:
    folder = edited(
        "llama", tmp_path / "model", lambda v: v.update({buffer: np.zeros(8, np.float32)})
    )
    assert set(load_model(folder).weights) == set(load_model(tiny_folder("llama")).weights)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("blk.2.ffn_gate.weight", r"m.gguf: tensor blk.2.ffn_gate.weight \[96, 64\] is missing"),
        ("token_embd.weight", r"m.gguf: llama.vocab_size: the tensor token_embd.weight is missing"),
    ],
)
def test_missing_tensors_of_gguf_files(missing: str, expected: str, tmp_path: Path) -> None:
    write_gguf(tiny_folder("llama"), tmp_path / "m.gguf")
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if name != missing}
    damaged = Checkpoint(checkpoint.path, "gguf", checkpoint.metadata, tensors)
    with pytest.raises(CheckpointError, match=expected):
        load_weights(damaged, read_spec(damaged))


def test_surplus_tensors_of_gguf_files(tmp_path: Path) -> None:
    write_gguf(tiny_folder("llama"), tmp_path / "m.gguf")
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    spare = checkpoint.tensors["blk.0.ffn_gate.weight"]
    tensors = dict(checkpoint.tensors) | {"blk.0.ffn_gate_exps.weight": spare}
    surplus = Checkpoint(checkpoint.path, "gguf", checkpoint.metadata, tensors)
    with pytest.raises(
        CheckpointError, match=r"m.gguf: tensor blk.0.ffn_gate_exps.weight is not part of a llama"
    ):
        load_weights(surplus, read_spec(surplus))


def test_rope_factors_must_fit_the_head(tmp_path: Path) -> None:
    write_gguf(tiny_folder("llama3-rope"), tmp_path / "m.gguf")
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    metadata = dict(checkpoint.metadata)
    for key in ("llama.attention.key_length", "llama.attention.value_length"):
        metadata[key] = 16
    with pytest.raises(
        CheckpointError, match=r"rope_freqs.weight must be F32 \[8\]; given: \(16,\)"
    ):
        read_spec(Checkpoint(checkpoint.path, "gguf", metadata, checkpoint.tensors))


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    """Tensors are views of the mapped file: loading a model copies none but permuted rows."""
    write_gguf(tiny_folder("llama"), tmp_path / "m.gguf", QuantType.Q8_0)
    for path in (tmp_path / "m.gguf", tiny_folder("llama")):
        for name, weight in load_model(path).weights.items():
            permuted = path.suffix == ".gguf" and name.rpartition(".")[2] in ("q", "k")
            assert weight.data.flags.writeable == permuted


def test_moved_folder_keeps_working_after_its_files_are_gone(tmp_path: Path) -> None:
    shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    weights = load_model(tmp_path / "model").weights
    shutil.rmtree(tmp_path / "model")
    assert np.isfinite(weights["embed"].to_float32()).all()
