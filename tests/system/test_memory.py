"""Memory of all processes, and what a request may take: long texts and lists, log-probabilities (known failure R59)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.config import Backend, CacheConfig, EngineConfig, ModelConfig
from octavo.evaluation.processes import descendants, process_use
from octavo.models.footprint import block_bytes, weight_bytes
from octavo.models.model import load_model
from support.answers import COMPLETIONS
from support.server_process import RunningServer, running_server, tiny_config, write_long_text_model

MAX_LEN = 2048


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a long context, over the native kernels."""
    folder = tmp_path_factory.mktemp("long") / "tiny"
    write_long_text_model(folder, MAX_LEN)
    config = replace(tiny_config(folder, num_blocks=2048, max_num_seqs=8), backend=Backend.NATIVE)
    with running_server(config) as running:
        yield running


def memory_of(server: RunningServer) -> dict[str, int]:
    """The most bytes that each process has held so far."""
    sizes = {}
    for name, pid in (("server", server.process.pid), ("engine", server.engine_pid())):
        status = Path(f"/proc/{pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        sizes[name] = int(line.split()[1]) * 1024
    return sizes


def check_growth(server: RunningServer, before: dict[str, int], most: int) -> None:
    """No process has held so many more bytes meanwhile."""
    now = memory_of(server)
    assert all(now[name] - before[name] < most for name in before), (before, now)


def test_r59_logprobs_of_long_prompts(server: RunningServer) -> None:
    before = memory_of(server)
    body: dict[str, Any] = {
        "prompt": [5 + i % 200 for i in range(MAX_LEN - 1)],
        "echo": True,
        "logprobs": 20,
        "max_tokens": 1,
        "temperature": 0,
    }
    with httpx.Client(base_url=server.url, timeout=120) as http, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: http.post(COMPLETIONS, json=body).json(), range(8)))
        check_growth(server, before, 120 << 20)
        for answer in answers:
            assert answer["choices"] == answers[0]["choices"]
            assert len(answer["choices"][0]["logprobs"]["tokens"]) == MAX_LEN
        # As many as fill the limit of one request are refused before anything is computed.
        many = http.post(COMPLETIONS, json={**body, "prompt": [body["prompt"]] * 50})
        assert many.status_code == 400
        assert "at most 2097152 log-probabilities" in many.json()["error"]["message"]
    server.wait_idle()


def test_what_is_far_too_long_is_refused_at_once(server: RunningServer) -> None:
    before = memory_of(server)
    bodies: list[dict[str, Any]] = [
        {"prompt": "the cat " * 1_900_000},
        {"prompt": [5] * 5_000_000},
        {"prompt": "x", "allowed_token_ids": [5] * 5_000_000},
        {"prompt": "x", "stop_token_ids": [5] * 5_000_000},
        {"prompt": "x", "stop": ["abcdefgh"] * 1_000_000},
        {"prompt": "x", "bad_words": ["abcdefgh"] * 1_000_000},
        {"prompt": "x", "logit_bias": {str(i): 1 for i in range(900_000)}},
        {"prompt": ["x"] * 1000, "allowed_token_ids": [5] * 100_000},
    ]
    with httpx.Client(base_url=server.url, timeout=120) as http:
        for body in bodies:
            response = http.post(COMPLETIONS, json=body)
            assert response.status_code == 400, list(body)
            assert len(response.content) < 4000
        response = http.post("/tokenize", json={"prompt": "the cat " * 1_900_000})
        assert response.status_code == 400
    check_growth(server, before, 400 << 20)  # bodies of 16 MB, parsed; tokenizing took gigabytes
    server.wait_idle()


@pytest.mark.model
def test_all_processes_hold_weights_pages_and_little_more(smollm2_path: Path) -> None:
    """64 requests at once fill the pool. Afterwards the file is mapped nowhere, and no page is missing in the sum."""
    num_blocks, prompt_len, max_tokens = 448, 100, 12
    config = EngineConfig(
        model=ModelConfig(model=str(smollm2_path)),
        cache=CacheConfig(num_blocks=num_blocks),
    )
    model = load_model(smollm2_path)
    weights = weight_bytes(model.weights, "auto")
    pages = num_blocks * block_bytes(model.spec, 16, "bfloat16")
    with running_server(config) as server, httpx.Client(base_url=server.url, timeout=300) as http:
        bodies = [
            {
                "prompt": [1000 + 13 * i + j for j in range(prompt_len)],
                "max_tokens": max_tokens,
                "temperature": 0,
                "ignore_eos": True,
            }
            for i in range(64)
        ]
        with ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda body: http.post(COMPLETIONS, json=body).json(), bodies))
        assert [a["usage"]["completion_tokens"] for a in answers] == [max_tokens] * 64
        server.wait_idle()
        pids = (server.process.pid, *descendants(server.process.pid))
        assert len(pids) == 2
        for pid in pids:
            assert str(smollm2_path) not in Path(f"/proc/{pid}/maps").read_text()
        held = sum(process_use(pid).pss_bytes for pid in pids)
    assert held > weights + 0.9 * pages
    assert held < weights + pages + (250 << 20), f"{(held - weights - pages) >> 20} MiB"
