"""GGUF and Hugging Face forms of one model are one model: the same weights, specs and logits."""

from pathlib import Path

import numpy as np
import pytest

from octavo.checkpoints.quants import QuantType
from octavo.models.model import load_model
from support.backends import BACKENDS, make_runner, prompt_logits
from support.tiny_gguf import save_values, write_gguf
from support.tiny_models import TINY, oracle_logits, prompt, save_tiny, tiny_folder

NOT_IN_GGUF = {"qwen2-window"}
"""The format has no key for windows from a layer on."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(set(TINY) - NOT_IN_GGUF))
def test_float32_file_has_the_logits_of_transformers(
    backend: str, name: str, tmp_path: Path
) -> None:
    write_gguf(tiny_folder(name), tmp_path / "model.gguf")
    runner = make_runner(backend, load_model(tmp_path / "model.gguf"), num_blocks=40)
    expected = oracle_logits(name, 129)
    assert np.abs(prompt_logits(runner, prompt(129)) - expected).max() < 1e-4 * expected.max()


@pytest.mark.parametrize("name", sorted(set(TINY) - NOT_IN_GGUF))
def test_float32_file_has_the_weights_of_the_folder(name: str, tmp_path: Path) -> None:
    write_gguf(tiny_folder(name), tmp_path / "model.gguf")
    from_gguf, from_folder = load_model(tmp_path / "model.gguf"), load_model(tiny_folder(name))
    assert set(from_gguf.weights) == set(from_folder.weights)
    for weight_name, weight in from_gguf.weights.items():
        expected = from_folder.weights[weight_name].to_float32()
        np.testing.assert_array_equal(weight.to_float32(), expected, err_msg=weight_name)
    for one, other in zip(from_gguf.spec.ropes, from_folder.spec.ropes, strict=True):
        np.testing.assert_allclose(one.inv_freq, other.inv_freq, rtol=1e-6)
        assert one.attention_factor == pytest.approx(other.attention_factor)
    assert from_gguf.spec.layers == from_folder.spec.layers
    assert from_gguf.spec.tied_head == from_folder.spec.tied_head


@pytest.mark.parametrize("quant", QuantType)
@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
def test_quantized_file_has_the_logits_of_its_values(
    quant: QuantType, family: str, tmp_path: Path
) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "num_hidden_layers": 2}
    save_tiny(tmp_path / "origin", family, wide)
    held = write_gguf(tmp_path / "origin", tmp_path / "model.gguf", quant)
    save_values(held, tmp_path / "origin", tmp_path / "values")
    from_gguf, from_values = load_model(tmp_path / "model.gguf"), load_model(tmp_path / "values")
    assert from_gguf.weights["layers.0.q"].quant is quant
    logits = [
        prompt_logits(make_runner("reference", model, num_blocks=4), prompt(33))
        for model in (from_gguf, from_values)
    ]
    assert np.isfinite(logits[0]).all()
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-5 * np.abs(logits[1]).max())


def test_rows_of_quantized_q_and_k_move_whole(tmp_path: Path) -> None:
    save_tiny(
        tmp_path / "origin",
        "Llama",
        {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1},
    )
    held = write_gguf(tmp_path / "origin", tmp_path / "model.gguf", QuantType.Q6_K)
    weights = load_model(tmp_path / "model.gguf").weights
    for name, stored in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj")):
        expected = held[f"model.layers.0.self_attn.{stored}.weight"]
        np.testing.assert_array_equal(weights[f"layers.0.{name}"].to_float32(), expected)
