"""An engine that dies, freezes or fails is told to everyone in bounded time, and leaves nothing (known failure R49)."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import pytest

from support.answers import COMPLETIONS, complete, script
from support.raw_stream import RawStream
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config
from support.sse import parse_events

Open: TypeAlias = Callable[..., RawStream]

ENDLESS = script("\x04\x05abc ")
EXIT_TIMEOUT_S = 15.0
"""Grace for errors and 503s, then the exit."""
FREEZE_TIMEOUT_S = 20.0
"""The documented bound is 10 s without a beat, checked every second."""


@pytest.fixture
def server(merged_model: Path) -> Iterator[RunningServer]:
    """A server of the test's own: it will be broken. Three sequences run at once."""
    config = tiny_config(merged_model, num_blocks=4096, max_num_seqs=3)
    with running_server(config, engine_module=SCRIPTED) as running:
        yield running


def ask(
    server: RunningServer, open_stream: Open, *, stream: bool, prompt: str = ENDLESS
) -> RawStream:
    return open_stream(
        server.url, COMPLETIONS, {"prompt": prompt, "max_tokens": 3000, "stream": stream}
    )


def three_streams(server: RunningServer, open_stream: Open) -> list[RawStream]:
    streams = [ask(server, open_stream, stream=True) for _ in range(3)]
    for stream in streams:
        assert stream.read_headers() == 200
    return streams


def check_error_ends_stream(body: str) -> None:
    """Text first, then one error, then the proper end."""
    events = parse_events(body)
    assert "choices" in events[0]
    assert [event["error"]["code"] for event in events if "error" in event] == [503]
    assert "error" in events[-1]


def check_gone(server: RunningServer, engine_pid: int, code: int) -> None:
    """Both processes have ended, with this code, and the port is free."""
    assert server.process.wait(timeout=EXIT_TIMEOUT_S) == code
    deadline = time.monotonic() + 5
    while Path(f"/proc/{engine_pid}").exists():
        assert time.monotonic() < deadline, "the engine process is an orphan"
        time.sleep(0.05)
    address = urlsplit(server.url)
    with socket.create_server((address.hostname or "", address.port or 0)):
        pass


def status_of(server: RunningServer, path: str, body: dict[str, Any] | None = None) -> int:
    method = "GET" if body is None else "POST"
    return httpx.request(method, server.url + path, json=body, timeout=10).status_code


def queue(server: RunningServer, open_stream: Open) -> list[RawStream]:
    """Three requests, whole and streamed, that wait behind those that run."""
    queued = [ask(server, open_stream, stream=bool(i % 2)) for i in range(3)]
    deadline = time.monotonic() + 10
    while server.metrics()["vllm:num_requests_waiting"] < 3:
        assert time.monotonic() < deadline
    return queued


def check_refused(queued: list[RawStream]) -> None:
    for stream in queued:
        assert stream.read_headers() == 503
        assert '"code":503' in stream.read_rest()


def test_the_engine_is_killed(server: RunningServer, open_stream: Open) -> None:
    engine_pid = server.engine_pid()
    streams = three_streams(server, open_stream)
    queued = queue(server, open_stream)
    os.kill(engine_pid, signal.SIGKILL)
    for stream in streams:
        check_error_ends_stream(stream.read_rest())
    check_refused(queued)
    assert status_of(server, "/health") == 503
    assert status_of(server, "/v1/models") == 503
    assert status_of(server, COMPLETIONS, {"prompt": "x"}) == 503
    assert status_of(server, "/version") == 200
    check_gone(server, engine_pid, 1)


def test_a_step_raises(server: RunningServer, open_stream: Open) -> None:
    engine_pid = server.engine_pid()
    streams = three_streams(server, open_stream)[:2]
    failing = ask(server, open_stream, stream=False, prompt=script("\x03"))
    behind = ask(server, open_stream, stream=True)
    streams[0].vanish(reset=True)  # makes room for the request that fails
    check_error_ends_stream(streams[1].read_rest())
    check_refused([behind])
    assert failing.read_headers() == 503
    assert "told to fail" in failing.read_rest()
    check_gone(server, engine_pid, 1)


def test_the_engine_is_frozen_and_comes_back(server: RunningServer, open_stream: Open) -> None:
    engine_pid = server.engine_pid()
    streams = three_streams(server, open_stream)
    queued = queue(server, open_stream)
    os.kill(engine_pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + FREEZE_TIMEOUT_S
        while status_of(server, "/health") == 200:
            assert time.monotonic() < deadline, "a frozen engine counts as healthy"
            time.sleep(0.2)
        assert status_of(server, COMPLETIONS, {"prompt": "x"}) == 503
        for stream in streams:
            check_error_ends_stream(stream.read_rest())
        check_refused(queued)
    finally:
        os.kill(engine_pid, signal.SIGCONT)
    server.wait_ready(10)
    server.wait_idle()
    with httpx.Client(base_url=server.url, timeout=10) as http:
        assert complete(http, script("back")).text == "back"


def test_a_blocked_step_does_not_block_the_exit(merged_model: Path, open_stream: Open) -> None:
    config = tiny_config(merged_model, num_blocks=4096)
    with running_server(config, engine_module=SCRIPTED, shutdown_timeout_s=1.0) as server:
        engine_pid = server.engine_pid()
        blocked = ask(server, open_stream, stream=False, prompt=script("\x02"))
        deadline = time.monotonic() + 10
        while (
            status_of(server, "/load") != 200
            or not httpx.get(f"{server.url}/load").json()["server_load"]
        ):
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        assert blocked.read_headers() == 503
        check_gone(server, engine_pid, 1)


def test_the_front_end_is_killed(server: RunningServer, open_stream: Open) -> None:
    engine_pid = server.engine_pid()
    three_streams(server, open_stream)
    server.kill()
    check_gone(server, engine_pid, -signal.SIGKILL)
