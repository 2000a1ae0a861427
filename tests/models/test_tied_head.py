"""Tied embeddings in every form (case R53).

What wins: tie_word_embeddings. With it, a head in the file is not used (and a warning says so if it
differs); without it, a head must be there. A GGUF file has no such key: a file without output.weight is tied.
"""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from octavo.errors import CheckpointError
from octavo.models.footprint import weight_bytes
from octavo.models.model import Model, load_model
from support.backends import make_runner, prompt_logits
from support.tiny_gguf import save_values, write_gguf
from support.tiny_models import folder_logits, prompt, tiny_folder

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def form(tmp_path: Path, name: str, *, tie: bool | None, head: str) -> Path:
    """The tiny tied model with another `tie_word_embeddings` (None: no key) and head (none|equal|other)."""
    base = tiny_folder(name)
    values = load_file(base / "model.safetensors")
    assert HEAD not in values
    if head == "equal":
        values[HEAD] = values[EMBEDDING].copy()
    elif head == "other":
        values[HEAD] = values[EMBEDDING][::-1].copy()
    folder = tmp_path / f"{tie}-{head}"
    save_values(values, base, folder)
    config = json.loads((folder / "config.json").read_text())
    del config["tie_word_embeddings"]
    if tie is not None:
        config["tie_word_embeddings"] = tie
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def logits(model: Model) -> NDArray[Any]:
    return prompt_logits(make_runner("reference", model, num_blocks=3), prompt(20))


def assert_equal_to_transformers(folder: Path) -> None:
    expected = folder_logits(folder, prompt(20))
    assert np.abs(logits(load_model(folder)) - expected).max() < 1e-4 * np.abs(expected).max()


def test_tied_without_a_head(tmp_path: Path) -> None:
    folder = form(tmp_path, "smollm", tie=True, head="none")
    model = load_model(folder)
    assert model.spec.tied_head
    assert "head" not in model.weights
    assert_equal_to_transformers(folder)


def test_tied_with_an_equal_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = form(tmp_path, "smollm", tie=True, head="equal")
    without = load_model(form(tmp_path, "smollm", tie=True, head="none"))
    model = load_model(folder)
    np.testing.assert_array_equal(logits(model), logits(without))
    assert_equal_to_transformers(folder)
    assert weight_bytes(model.weights, "float32") == weight_bytes(without.weights, "float32")
    assert caplog.records == []


def test_tied_with_another_head_is_tied_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without = load_model(form(tmp_path, "smollm", tie=True, head="none"))
    with caplog.at_level(logging.WARNING):
        model = load_model(form(tmp_path, "smollm", tie=True, head="other"))
    np.testing.assert_array_equal(logits(model), logits(without))
    assert "lm_head.weight differs from the embedding, but tie_word_embeddings" in caplog.text


def test_untied_with_a_head(tmp_path: Path) -> None:
    folder = form(tmp_path, "smollm", tie=False, head="other")
    assert not load_model(folder).spec.tied_head
    assert_equal_to_transformers(folder)


@pytest.mark.parametrize(("name", "tie"), [("smollm", False), ("smollm", None), ("gemma3", False)])
def test_untied_without_a_head_is_an_error(name: str, tie: bool | None, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor lm_head.weight \[256, \d+\] is missing"):
        load_model(form(tmp_path, name, tie=tie, head="none"))


def test_without_the_key_llama_is_untied_and_gemma_tied(tmp_path: Path) -> None:
    llama = form(tmp_path, "smollm", tie=None, head="other")
    assert_equal_to_transformers(llama)
    gemma = form(tmp_path, "gemma3", tie=None, head="none")
    assert load_model(gemma).spec.tied_head
    assert_equal_to_transformers(gemma)


@pytest.mark.parametrize("head", ["none", "other"])
def test_gguf_is_tied_when_it_has_no_head(head: str, tmp_path: Path) -> None:
    folder = form(tmp_path, "smollm", tie=head == "none", head=head)
    write_gguf(folder, tmp_path / "m.gguf")
    model = load_model(tmp_path / "m.gguf")
    assert model.spec.tied_head == (head == "none")
    np.testing.assert_allclose(logits(model), logits(load_model(folder)), atol=1e-4)
