"""Readers that take nothing, or little (known failure R47): bounded memory, a documented timeout, never a hole."""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from support.answers import COMPLETIONS, complete, script
from support.merged_tokens import write_merged_text_model
from support.raw_stream import RawStream
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config

Open: TypeAlias = Callable[..., RawStream]

SENTENCE = "世界您好，今天天气很好。"
TOKENS = len(SENTENCE.encode())
MAX_GROWTH_BYTES = 150 << 20
MOST_TIMES = 10
"""How much longer a usual request may take: the slow ones have sequences in its steps, and frames to be written, while it runs."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow") / "tiny"
    write_merged_text_model(folder, 8192)
    return folder


def impatient(model: Path, timeout_s: float) -> Any:
    return running_server(
        tiny_config(model, num_blocks=16384),
        engine_module=SCRIPTED,
        slow_client_timeout_s=timeout_s,
    )


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[RunningServer]:
    """A server that waits two seconds for a reader."""
    with impatient(model, 2.0) as running:
        yield running


def long_body(max_tokens: int) -> dict[str, Any]:
    """Token ids and logprobs make a chunk large even where the tokens of many steps are in one."""
    return {
        "prompt": script("\x05" + SENTENCE),
        "max_tokens": max_tokens,
        "stream": True,
        "logprobs": 1,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def check_no_hole(body: str, *, complete: bool) -> None:
    """All that has come is valid and is a beginning of the whole."""
    events = body.split("\n\n")
    assert events.pop() == ""  # complete frames only: a chunk of HTTP is a frame
    text, ids = "", []
    for event in events:
        if event == "data: [DONE]":
            continue
        choice = json.loads(event.removeprefix("data: "))["choices"][0]
        text += choice["text"]
        ids += choice["token_ids"]
    whole = SENTENCE * (len(text) // len(SENTENCE) + 1)
    assert whole.startswith(text)
    assert "\ufffd" not in text
    assert ids[:TOKENS] * (len(ids) // TOKENS) == ids[: len(ids) // TOKENS * TOKENS]
    # A cut connection may take with it what had arrived and was not read: then nothing is left, not a hole.
    assert (events[-1:] == ["data: [DONE]"]) == complete


def num_cut(server: RunningServer) -> float:
    return server.metrics()["octavo_slow_clients_total"]


def wait_for_cut(server: RunningServer, number: float, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while num_cut(server) < number:
        assert time.monotonic() < deadline, f"{num_cut(server)} of {number} readers were cut"
        time.sleep(0.1)


def finished(http: httpx.Client, reason: str) -> float:
    """Choices that ended for this reason."""
    prefix = f'octavo_request_success_total{{engine="0",finished_reason="{reason}"'
    (line,) = (x for x in http.get("/metrics").text.splitlines() if x.startswith(prefix))
    return float(line.rpartition(" ")[2])


def seconds_for(http: httpx.Client) -> float:
    """How long a usual request takes, whole and as a stream."""
    started = time.monotonic()
    assert complete(http, script("as usual")).text == "as usual"
    return time.monotonic() - started


def run_case(
    server: RunningServer, open_stream: Open, num_slow: int, max_tokens: int, patience_s: float
) -> None:
    """`num_slow` readers stop after the headers, others read a little; one reads as usual."""
    with httpx.Client(base_url=server.url, timeout=120) as http:
        usual = complete(http, script("as usual"))
        alone = statistics.median(seconds_for(http) for _ in range(20))
        before = memory_of(server.process.pid)
        cut, aborted = num_cut(server), finished(http, "abort")
        slow = [
            open_stream(server.url, COMPLETIONS, long_body(max_tokens)) for _ in range(num_slow)
        ]
        for stream in slow:
            assert stream.read_headers() == 200
        beside: list[float] = []
        started = time.monotonic()
        while time.monotonic() - started < 1.0 or len(beside) < 10:
            beside.append(seconds_for(http))
            for stream in slow[: num_slow // 2]:
                stream.read_some(10)
        assert statistics.median(beside) < MOST_TIMES * alone
        assert memory_of(server.process.pid) - before < MAX_GROWTH_BYTES
        wait_for_cut(server, cut + num_slow, patience_s)
        server.wait_idle()
        for stream in slow:
            check_no_hole(stream.read_rest(), complete=False)
        assert finished(http, "abort") == aborted + num_slow
        assert complete(http, script("as usual")).text == usual.text


def test_absent_readers_are_cut(server: RunningServer, open_stream: Open) -> None:
    run_case(server, open_stream, num_slow=10, max_tokens=6000, patience_s=20)


def test_a_reader_that_comes_back_in_time_misses_nothing(model: Path, open_stream: Open) -> None:
    with impatient(model, 20.0) as server:
        # A receive buffer below a packet of the loopback makes TCP wait for its probe timer, as if the reader were
        # still away; then it is the kernel's back-off that is tested.
        stream = open_stream(server.url, COMPLETIONS, long_body(6000), receive_buffer=1 << 18)
        assert stream.read_headers() == 200
        time.sleep(1.0)
        check_no_hole(stream.read_rest(), complete=True)
        assert num_cut(server) == 0


def test_a_slow_but_steady_reader_is_served(server: RunningServer, open_stream: Open) -> None:
    before = num_cut(server)
    stream = open_stream(server.url, COMPLETIONS, long_body(6000), receive_buffer=1 << 18)
    assert stream.read_headers() == 200
    started = time.monotonic()
    while time.monotonic() - started < 5.0:  # longer than the timeout
        stream.read_some(40_000)
        time.sleep(0.2)
    check_no_hole(stream.read_rest(), complete=True)
    assert num_cut(server) == before


def test_an_absent_reader_of_a_whole_answer(server: RunningServer, open_stream: Open) -> None:
    body = {**long_body(5000), "stream": False, "n": 8}
    before = num_cut(server)
    stream = open_stream(server.url, COMPLETIONS, body)
    assert stream.read_headers() == 200
    wait_for_cut(server, before + 1, 20)


@pytest.mark.long
def test_absent_readers_for_a_minute(model: Path, open_stream: Open) -> None:
    with impatient(model, 60.0) as server:
        run_case(server, open_stream, num_slow=20, max_tokens=7000, patience_s=150)
