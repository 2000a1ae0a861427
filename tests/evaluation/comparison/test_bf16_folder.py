from pathlib import Path

import numpy as np
import pytest

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.errors import ConfigError
from octavo.evaluation.comparison.bf16_folder import bf16_folder, to_bf16
from octavo.models.model import load_model
from octavo.text.gguf_tokenizer import gguf_tokenizer_parts
from octavo.text.huggingface_tokenizer import huggingface_tokenizer_parts


def test_rounding_to_bfloat16() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -3.3895314e38, 1e-40, 0.0], np.float32)
    bits = to_bf16(values)
    # Two of the halves between neighbours: to the even one, down and up.
    assert [hex(b) for b in bits] == ["0x3f80", "0x3f80", "0x3f82", "0xff7f", "0x1", "0x0"]


@pytest.mark.model
def test_the_folder_is_the_model(smollm2_path: Path, tmp_path: Path) -> None:
    folder = bf16_folder(smollm2_path, tmp_path / "folder")
    model, written = load_model(smollm2_path), load_model(folder)
    assert written.spec == model.spec
    assert written.generation.end_token_ids == model.generation.end_token_ids
    for name in ("embed", "layers.0.q", "layers.29.k", "layers.7.down", "layers.3.ffn_norm"):
        expected, found = model.weights[name].to_float32(), written.weights[name].to_float32()
        assert (np.abs(found - expected) <= 2.0**-8 * np.abs(expected)).all(), name
    text = "def f(x):\n    return x ** 2  # né 你好 <|im_end|>"
    ours = gguf_tokenizer_parts(open_checkpoint(smollm2_path).metadata).backend
    theirs = huggingface_tokenizer_parts(folder / "tokenizer.json").backend
    assert theirs.encode(text).ids == ours.encode(text).ids
    assert sorted(tmp_path.iterdir()) == [folder], "no half-written folder is left"
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert bf16_folder(smollm2_path, folder) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before, "written once"


@pytest.mark.model
def test_another_family_is_refused(gemma_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"only a plain Llama.*given: gemma3"):
        bf16_folder(gemma_path, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []
