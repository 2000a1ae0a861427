"""What sharing must save on the real model."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from support.command import environment

pytestmark = [pytest.mark.model, pytest.mark.long]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """`octavo bench sharing`, in full."""
    result = subprocess.run(
        [sys.executable, "-m", "octavo", "bench", "sharing", "--output", "json"],
        env=environment(), capture_output=True, check=True,
    )  # fmt: skip
    value: dict[str, Any] = msgspec.json.decode(result.stdout)
    return value


@pytest.mark.parametrize("kind", ["samples", "beams"])
def test_pages_are_saved_as_the_tokens_say(report: dict[str, Any], kind: str) -> None:
    rows = [row for row in report["sharing"] if row["kind"] == kind]
    assert [row["count"] for row in rows] == [2, 4, 6]
    for row in rows:
        assert row["peak_saved"] == row["peak_saved_predicted"] >= 62 * (row["count"] - 1)
        assert row["booked_peak_pages"] in (None, row["peak_pages"])


def test_eight_samples_take_one_prefill_and_a_quarter_of_the_pages(report: dict[str, Any]) -> None:
    samples = report["samples"]
    assert (samples["n"], samples["prompt_tokens"], samples["output_tokens"]) == (8, 1000, 128)
    assert samples["computed_together"] == 1000 + 8 * 127
    assert samples["peak_ratio"] >= 4


def test_clients_with_the_same_instructions_are_five_times_as_fast(report: dict[str, Any]) -> None:
    assert report["clients"]["num_clients"] == 32
    assert report["clients"]["speedup"] >= 5
