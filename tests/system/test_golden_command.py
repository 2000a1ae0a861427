"""`octavo eval golden` on the default models: the exact mode is right, and the fast one near it."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.command import octavo

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SMOLLM2 = GOLDEN / "smollm2-135m-instruct-q4_1.json"
GEMMA = GOLDEN / "gemma-3-270m-q4_k_m.json"

pytestmark = pytest.mark.model


def report(file: Path, model: Path, *arguments: str) -> dict[str, Any]:
    """What the command measures."""
    result = octavo(
        "eval", "golden", str(file), "--model", str(model), "--output", "json", *arguments
    )
    assert result.returncode == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def check_exact(measured: dict[str, Any]) -> None:
    assert measured["tokenization_equal"], measured["tokenization_differences"]
    assert measured["greedy_identical"]
    assert measured["max_logprob_diff"] < 2e-3


def test_smollm2_in_float32(smollm2_path: Path) -> None:
    measured = report(SMOLLM2, smollm2_path, "--dtype", "float32")
    check_exact(measured)
    assert measured["cases"] == 16


@pytest.mark.long
def test_gemma_in_float32(gemma_path: Path) -> None:
    measured = report(GEMMA, gemma_path, "--dtype", "float32")
    check_exact(measured)
    assert measured["cases"] == 13


def test_smollm2_in_auto_is_near_float32(smollm2_path: Path) -> None:
    measured = report(SMOLLM2, smollm2_path)
    assert measured["dtype"] == "auto"
    assert measured["tokenization_equal"]
    assert measured["mean_kl"] <= 0.01
    assert measured["top1_agreement"] >= 0.98
