"""Fixtures that every part of the tests may use. A model that is missing fails; it never skips."""

import signal
from pathlib import Path

import pytest

from octavo.checkpoints.locate import locate

# A shell starts what it runs in the background with interrupts ignored, and so would be all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, GGUF Q4_1, from the model cache (`make models` fetches it)."""
    return locate("smollm2", download=False)


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma-3-270M, GGUF Q4_K_M, from the model cache (`make models` fetches it)."""
    return locate("gemma3-270m", download=False)
