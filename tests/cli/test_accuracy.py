"""`octavo eval accuracy`: every mode is measured, and one that misses its bound is seen."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from octavo.cli.app import app
from octavo.config import KV_CACHE_DTYPES
from octavo.core.step import StepPlan
from octavo.evaluation import runners
from octavo.evaluation.forced import LogitsRunner
from octavo.resolve import ResolvedConfig
from support.command import octavo
from support.text_model import text_model_folder

ROOT = Path(__file__).parents[2]
PROSE = ROOT / "bench" / "text" / "prose.txt"


@pytest.fixture
def arguments() -> list[str]:
    """On a tiny model; a token of it is a byte."""
    return ["eval", "accuracy", str(text_model_folder()), "--text", str(PROSE), "--tokens", "600"]


def test_every_mode_is_measured(arguments: list[str]) -> None:
    result = octavo(*arguments, "--output", "json")
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["all_within_bounds"]
    modes = {(line["weights"], line["kv_cache_dtype"]): line for line in report["modes"]}
    caches = set(KV_CACHE_DTYPES) - {"auto", "fp8_e4m3"}  # the latter is fp8
    assert len(report["modes"]) == len(modes)
    assert set(modes) == {(w, c) for w in ("auto", "bfloat16", "float32") for c in caches}
    assert modes["float32", "float32"]["mean_kl"] == 0
    assert 0 < modes["float32", "bfloat16"]["mean_kl"] < modes["bfloat16", "bfloat16"]["mean_kl"]
    assert {line["num_positions"] for line in report["modes"]} == {600}


def test_a_damaged_mode_misses_its_bound(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runners.opened_runner

    class Damaged:
        """Every 50th logit is one too high."""

        def __init__(self, runner: LogitsRunner) -> None:
            self._runner = runner
            self.num_blocks, self.block_size = runner.num_blocks, runner.block_size
            self.run, self.close = runner.run, runner.close

        def forward(self, plan: StepPlan) -> NDArray[np.float32]:
            logits = self._runner.forward(plan)
            logits[:, ::50] += 1
            return logits

    @contextmanager
    def opened(config: Any, *rest: Any) -> Iterator[tuple[LogitsRunner, ResolvedConfig]]:
        with real(config, *rest) as (runner, resolved):
            yield (Damaged(runner) if config.model.dtype == "bfloat16" else runner), resolved

    monkeypatch.setattr(runners, "opened_runner", opened)
    modes = ["--modes", "auto,bfloat16", "--kv-cache-dtypes", "bfloat16"]
    result = CliRunner().invoke(app, [*arguments, *modes])
    assert result.exit_code == 1
    (missed,) = (line for line in result.stdout.splitlines() if "MISSED" in line)
    assert [cell.strip() for cell in missed.split("|")][1:3] == ["bfloat16", "bfloat16"]
    assert "all_within_bounds  no" in result.stdout
    sound = CliRunner().invoke(app, [*arguments, "--modes", "auto"])
    assert sound.exit_code == 0 and "MISSED" not in sound.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--modes", "auto,int3"], "--modes takes auto, float32, bfloat16.*; given: int3"),
        (["--modes", "float"], "; given: float"),
        (["--kv-cache-dtypes", "fp8_e4m3"], "--kv-cache-dtypes takes .*fp8; given: fp8_e4m3"),
        (["--kv-cache-dtypes", "auto"], "--kv-cache-dtypes takes float32, .*; given: auto"),
        (["--tokens", "99999"], "enough to predict .*; given: 99999"),
        (["--tokens", "0"], "--tokens must be at least 1; given: 0"),
        (["--text", "nowhere.txt"], "--text: nowhere.txt: .*No such file"),
    ],
)
def test_mistakes_are_named(arguments: list[str], changes: list[str], message: str) -> None:
    result = octavo(*arguments, *changes)
    assert result.returncode != 0
    assert result.stdout == ""
    assert re.search(message, result.stderr), result.stderr


def test_something_to_compare_on_is_needed() -> None:
    result = octavo("eval", "accuracy", str(text_model_folder()))
    assert result.returncode != 0
    assert "--text FILE, --golden FILE" in result.stderr
