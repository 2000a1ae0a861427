"""`octavo bench compare` and `bench baseline`: mistakes. What they measure needs other systems and is tested in parts."""

import json
from pathlib import Path

import pytest

from octavo.cli.benchmarks.compare import parse_first
from octavo.errors import ConfigError
from support.command import octavo

WORKLOADS = str(Path(__file__).parents[2] / "bench" / "workloads")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "--peers", "tgi"), "--peers takes openvino, llama.cpp, vllm, transformers; given: tgi"),
        (("compare", "--rows", "row"), "--rows takes start, one-stream"),
        (("compare", "--pairs", "0"), "--pairs must be at least 1; given: 0"),
        (("compare", "--first", "transformers"), "--first takes PEER:COUNT"),
        (("compare", "--workloads", "nowhere"), "nowhere/sharegpt64.jsonl: No such file"),
        (("baseline", "smollm2", "--requests", "0"), "--requests must be at least 1; given: 0"),
        (("baseline", "smollm2", "--batch", "0"), "--batch takes numbers from 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "found.json")) if arguments[0] == "compare" else ()
    workloads = ("--workloads", WORKLOADS) if arguments[0] == "compare" else ()
    result = octavo("bench", arguments[0], *workloads, *out, *arguments[1:])
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    out.write_text(json.dumps({}))
    result = octavo("bench", "compare", "--workloads", WORKLOADS, "--out", str(out))
    assert result.returncode == 2
    assert "exists; give --resume" in result.stderr
    assert out.read_text() == "{}"
    result = octavo("bench", "compare", "--workloads", WORKLOADS, "--out", str(out), "--resume")
    assert result.returncode == 2
    assert "is not a saved comparison" in result.stderr


def test_first_requests() -> None:
    assert parse_first(None) == {}
    assert parse_first("transformers:16,vllm:32") == {"transformers": 16, "vllm": 32}
    for text in ("transformers:0", "transformers:x", "tgi:4", ""):
        if text:
            with pytest.raises(ConfigError, match="--first takes PEER:COUNT"):
                parse_first(text)
