"""`octavo bench latency`, `serve` and `kernels` as a user runs them, on a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.command import octavo
from support.server_process import running_server, tiny_config
from support.stream_server import GOOD, REFUSED, stream_server
from support.text_model import text_model_folder

STATE = {"speculation": "off", "prefix_cache": "on, empty at the start"}


@pytest.fixture(scope="module")
def model() -> str:
    """The folder of a tiny model; its dtype is float32."""
    return str(text_model_folder())


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Six requests."""
    return write_workload(tmp_path / "work.jsonl", [list(range(10, 20 + i)) for i in range(6)])


def write_workload(path: Path, prompts: list[list[int]]) -> Path:
    lines = [
        {"id": i, "prompt_token_ids": ids, "max_tokens": 3 + i} for i, ids in enumerate(prompts)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def run(*arguments: str, returncode: int = 0) -> dict[str, Any]:
    """The JSON of one `octavo bench`."""
    result = octavo("bench", *arguments, "--output", "json")
    assert result.returncode == returncode, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


SHORT = ("--batch", "1,3", "--context", "40", "--steps", "4", "--prompts", "2", "--prompt-tokens", "50")  # fmt: skip


def test_latency_with_a_profile(model: str) -> None:
    report = run("latency", "--model", model, *SHORT, "--profile", "--max-num-batched-tokens", "64")
    assert [decode["batch"] for decode in report["decode"]] == [1, 3]
    for decode in report["decode"]:
        assert decode["context"] == 40
        assert 0 < decode["step_ms"]["min"] <= decode["step_ms"]["p50"] <= decode["step_ms"]["p99"]
        rate = decode["batch"] / decode["step_ms"]["p50"] * 1000
        assert decode["output_tokens_per_s"] == pytest.approx(rate)
    assert report["prefill"]["prompt_tokens_per_s"] > 0
    assert len(report["prefill"]["passes_s"]) == 3
    assert report["single_stream"]["num_output_tokens"] == 4
    assert list(report["profile"]) == ["batch 1", "batch 3", "prompts"]
    for rows in report["profile"].values():
        ops = {row["op"]: row for row in rows}
        for op in ("qkv", "attention", "output", "gate_up", "down", "head_logits"):
            assert ops[op]["bandwidth_share"] > 0
            assert ops[op]["operations_per_s"] > 0
            assert ops[op]["roofline_share"] > 0
        assert ops["norm"]["bandwidth_share"] is None
        assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert report.items() >= STATE.items()
    assert report["read_bandwidth_bytes_per_s"] > 1e8
    assert report["read_bandwidth_after_bytes_per_s"] > 1e8
    assert (report["max_num_seqs"], report["num_threads"] > 0) == (3, True)


def test_latency_of_the_reference_in_words(model: str) -> None:
    result = octavo("bench", "latency", "--model", model, *SHORT, "--backend", "reference")
    assert result.returncode == 0, result.stderr
    for words in (
        "Decoding, 40 tokens of context each",
        "A single stream",
        "prefix_cache",
        "numpy",
    ):
        assert words in result.stdout
    assert "packing" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("latency", "--batch", "1,x"), "--batch takes numbers from 1"),
        (("latency", "--steps", "0"), "num_steps must be at least 1"),
        (("latency", "--context", "500", "--prompt-tokens", "8"), "max_model_len must be at most 512"),
        (("latency", "--profile", "--backend", "reference"), "--profile needs the native backend"),
        (("kernels", "--formats", "q9"), "--formats takes float32, bfloat16"),
        (("kernels", "--rows", "0"), "--rows takes numbers from 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(arguments: tuple[str, ...], message: str, model: str) -> None:
    result = octavo("bench", *arguments, "--model", model)
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--concurrency", "2", "--request-rate", "1"), "both say when requests are sent"),
        (("--concurrency", "0"), "--concurrency must be above 0"),
        (("--goodput", "ttft:1"), "--goodput takes NAME:MS"),
        (("--url", "http://127.0.0.1:1"), "names no model"),
        (("--max-model-len", "8"), "do not fit into 8 (--max-model-len)"),
        (("--max-model-len", "8", "--no-offline"), "a request to warm up failed: status 400"),
    ],
)
def test_a_mistake_with_serve(
    arguments: tuple[str, ...], message: str, model: str, workload: Path
) -> None:
    result = octavo("bench", "serve", "--model", model, "--workload", str(workload), *arguments)
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]


def test_serve_starts_a_server_of_its_own(model: str, workload: Path) -> None:
    report = run(
        *("serve", "--model", model, "--workload", str(workload), "--concurrency", "2"),
        *("--num-requests", "8", "--num-blocks-override", "64", "--goodput", "e2e_ms:60000"),
    )
    assert (report["num_requests"], report["num_failed"], report["num_short"]) == (8, 0, 0)
    assert report["num_output_tokens"] == sum(range(3, 9)) + 3 + 4
    assert report["num_good"] == 8
    rate = report["num_output_tokens"] / report["elapsed_s"]
    assert report["output_tokens_per_s"] == pytest.approx(rate)
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert 0 <= report[name]["p50"] <= report[name]["p90"] <= report[name]["p99"]
    assert 0 < report["load_generator_cpu_share"] < 1
    assert report["front_end_cpu_us_per_token"] >= 0
    offline = report["offline_output_tokens_per_s"] * (1 - report["load_generator_cpu_share"])
    share = report["output_tokens_per_s"] / offline
    assert report["served_share_of_offline"] == pytest.approx(share)
    assert report["served_against_offline"].startswith(f"{share:.1%}: ")
    assert report["engine_cpu_s"] >= 0
    assert report["pss_bytes"] > report["front_end_pss_bytes"] > 1e6
    assert report["ledger_kv_cache_bytes"] > 0
    assert report["server_start_s"] > 0
    assert report["prefix_cache"] == "on, at the start with the prompts of the warm-up only"
    assert (report["num_blocks"], report["weight_dtype"]) == (64, "auto")
    assert report["read_bandwidth_after_bytes_per_s"] > 1e8


def test_serve_measures_a_server_that_runs(workload: Path) -> None:
    with running_server(tiny_config(text_model_folder())) as server:
        result = octavo(
            *("bench", "serve", "--url", server.url, "--workload", str(workload)),
            *("--request-rate", "50", "--seed", "3"),
        )
        server.wait_idle()
    assert result.returncode == 0, result.stderr
    for words in ("Latencies, ms", "ttft", "itl", "load_generator_cpu_share", "unknown"):
        assert words in result.stdout
    assert "running ..." in result.stderr


def test_failures_are_told_and_end_with_1(tmp_path: Path) -> None:
    # Prompts are turned round to warm up: what their first token says happens in the run itself only.
    prompts = [[GOOD, 9, GOOD], [REFUSED, 9, GOOD], [GOOD, 9, GOOD]]
    path = write_workload(tmp_path / "work.jsonl", prompts)
    with stream_server() as server:
        report = run("serve", "--url", server.url, "--workload", str(path), returncode=1)
    assert (report["num_requests"], report["num_failed"]) == (3, 1)
    ((reason, count),) = report["failures"].items()
    assert reason.startswith("status 503") and count == 1
    assert report["prefix_cache"] == "unknown"


def test_kernels(model: str) -> None:
    report = run("kernels", "--model", model, "--rows", "1,5", "--steps", "2")
    lines = report["kernels"]
    assert {line["format"] for line in lines} == {"float32", "bfloat16", "int8"}
    shapes = {(line["op"], line["k"], line["n"]) for line in lines}
    assert shapes == {
        ("qkv", 32, 64), ("output", 32, 32), ("gate_up", 32, 96), ("down", 48, 32),
        ("head_logits", 32, 260),
    }  # fmt: skip
    assert {line["num_rows"] for line in lines} == {1, 5}
    for line in lines:
        seconds = line["us"] * 1e-6
        operations = 2 * line["num_rows"] * line["k"] * line["n"]
        assert line["operations_per_s"] == pytest.approx(operations / seconds)
        assert line["bandwidth_share"] > 0
        peak = report[f"peak_{line['format']}_operations_per_s"]
        assert line["operations_share"] == pytest.approx(line["operations_per_s"] / peak)
        assert line["operations_share"] <= line["roofline_share"] * 1.001
    # Nothing is faster than the peaks of the same process. An op, or a peak, during which the machine stood still says
    # nothing; not all of them do.
    assert 0 < min(line["operations_share"] for line in lines) < 1
    assert report["read_bandwidth_after_bytes_per_s"] > 1e8


def test_engine() -> None:
    report = run("engine", "--batch", "1,3", "--steps", "5")
    assert [(row["num_seqs"], row["num_blocks"]) for row in report["steps"][:2]] == [
        (1, 100_000),
        (1, 1_000_000),
    ]
    assert len(report["steps"]) == 8
    small, large = report["pages"]
    assert (small["num_blocks"], large["num_blocks"]) == (100_000, 1_000_000)
    for name in ("take", "publish", "hit", "free", "evict"):
        assert 0 < large[f"{name}_us"] < 100
    for row in report["steps"]:
        parts = [row[f"{name}_ms"] for name in ("schedule", "pack", "commit", "report")]
        assert row["total_ms"] == pytest.approx(sum(parts)) and min(parts) > 0
    assert report.items() >= STATE.items()


def test_speculation(model: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "kind": "edit", "text": "a b a b a b a b"}')
    arguments = ("--prompts", str(prompts), "--max-tokens", "30", "--rounds", "1")
    report = run("speculation", "--model", model, *arguments)
    (row,) = report["prompts"]
    assert (row["id"], row["kind"], row["num_output_tokens"]) == ("a", "edit", 30)
    assert row["speedup"] == report["speedup_median"] == report["speedup_min"]
    assert report["speculation"] == "ngram"


def test_sharing(model: str) -> None:
    report = run(
        "sharing",
        "--model",
        model,
        "--counts",
        "2,3",
        "--prompt",
        "70",
        "--tokens",
        "12",
        "--clients",
        "6",
    )
    assert [(row["kind"], row["count"]) for row in report["sharing"]] == [
        ("samples", 2),
        ("samples", 3),
        ("beams", 2),
        ("beams", 3),
    ]
    for row in report["sharing"]:
        assert row["peak_saved"] == row["peak_saved_predicted"] > 0
        assert row["num_steps_off"] == 0
        assert row["peak_pages"] < row["peak_pages_unshared"]
    for row in report["sharing"][:2]:
        assert row["booked_peak_pages"] == row["peak_pages"]
        assert row["num_computed_tokens"] == 70 + row["count"] * 11  # one prefill
    assert report["samples"]["computed_apart"] == 8 * 81
    assert report["clients"]["computed_uncached"] == 6 * (70 + 30 + 31)
    assert report["clients"]["computed_cached"] <= 70 + 6 * (30 + 31) + 6
