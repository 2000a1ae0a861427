"""Tokenizers of the two real models, loaded once."""

from pathlib import Path

import pytest

from octavo.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    """Byte-level BPE, no BOS."""
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="session")
def gemma(gemma_path: Path) -> Tokenizer:
    """SentencePiece BPE with byte fallback and 262,144 tokens, BOS, no space prefix."""
    return load_tokenizer(gemma_path)


@pytest.fixture(params=["smollm2", "gemma"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each of the two."""
    loaded: Tokenizer = request.getfixturevalue(request.param)
    return loaded
