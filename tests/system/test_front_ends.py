"""Several front ends over one engine look like one server, and the death of one is not felt by the others."""

import functools
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.evaluation.processes import descendants
from support.answers import COMPLETIONS, script
from support.command import octavo
from support.engine_process import is_alive
from support.raw_stream import RawStream
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config
from support.sse import assemble, parse_events
from support.text_model import text_model_folder

Open: TypeAlias = Callable[..., RawStream]
COUNT = 3
TEXT = "a sentence that takes a while " * 4


@pytest.fixture(scope="module")
def shared(merged_model: Path) -> Iterator[RunningServer]:
    config = tiny_config(merged_model, num_blocks=16384, max_num_seqs=64)
    with running_server(config, engine_module=SCRIPTED, api_server_count=COUNT) as server:
        until(lambda: "ready at" in server.log_text())  # all of them, not only the first
        yield server


@pytest.fixture
def server(merged_model: Path) -> Iterator[RunningServer]:
    """A server of the test's own: it will be broken."""
    config = tiny_config(merged_model, num_blocks=16384, max_num_seqs=64)
    with running_server(config, engine_module=SCRIPTED, api_server_count=COUNT) as running:
        until(lambda: "ready at" in running.log_text())
        yield running


def front_ends(server: RunningServer) -> list[int]:
    """The process ids of the front ends; the other child is the engine."""
    return [pid for pid in descendants(server.process.pid) if b"frontends" in _command_of(pid)]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # it has ended meanwhile
        return b""


def engine_of(server: RunningServer) -> int:
    (engine,) = set(descendants(server.process.pid)) - set(front_ends(server))
    return engine


def ask(server: RunningServer, prompt: str, **fields: Any) -> httpx.Response:
    """A request over a connection of its own: the kernel chooses the front end anew."""
    body = {"prompt": prompt, "max_tokens": 500, **fields}
    return httpx.post(server.url + COMPLETIONS, json=body, timeout=30)


def successes(server: RunningServer) -> float:
    return server.metrics()["octavo_request_success_total"]


def stream(server: RunningServer, open_stream: Open, text: str, orders: str = "\x04") -> RawStream:
    body = {"prompt": script(orders + text), "max_tokens": 3000, "stream": True}
    opened = open_stream(server.url, COMPLETIONS, body)
    assert opened.read_headers() == 200
    return opened


def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come true"
        time.sleep(0.02)


def test_all_answer_and_each_gets_its_own(shared: RunningServer) -> None:
    assert len(front_ends(shared)) == COUNT
    before = successes(shared)
    with ThreadPoolExecutor(16) as pool:
        texts = [f"answer number {i}" for i in range(60)]
        answers = list(pool.map(lambda text: ask(shared, script(text)), texts))
    assert [answer.json()["choices"][0]["text"] for answer in answers] == texts
    assert len({answer.json()["id"] for answer in answers}) == 60
    # Whichever front end is asked knows of all, a moment later.
    until(lambda: successes(shared) == before + 60)
    time.sleep(0.6)
    assert {successes(shared) for _ in range(12)} == {before + 60}
    assert shared.metrics()["octavo_num_requests_running"] == 0


def test_the_load_is_that_of_all(shared: RunningServer, open_stream: Open) -> None:
    streams = [stream(shared, open_stream, "abc ", "\x04\x05") for _ in range(8)]
    until(lambda: httpx.get(f"{shared.url}/load").json() == {"server_load": 8})
    assert shared.metrics()["octavo_num_requests_running"] == 8
    for opened in streams:
        opened.vanish(reset=True)
    shared.wait_idle()
    until(lambda: httpx.get(f"{shared.url}/load").json() == {"server_load": 0})


def test_a_front_end_dies(server: RunningServer, open_stream: Open) -> None:
    before = set(front_ends(server))
    streams = [stream(server, open_stream, TEXT) for _ in range(24)]
    endless = [stream(server, open_stream, "abc ", "\x04\x05") for _ in range(24)]
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    ends: Counter[str] = Counter()
    for opened in streams:
        events = opened.read_rest()
        if "[DONE]" in events:
            assert assemble(parse_events(events)).texts == {0: TEXT}
            ends["finished"] += 1
        else:
            ends["cut"] += 1
    assert ends["finished"] and ends["cut"], ends
    until(lambda: len(front_ends(server)) == COUNT and victim not in front_ends(server))
    # The engine has been told: only the requests of the others still run.
    running = sum(not _has_ended(opened) for opened in endless)
    until(lambda: server.metrics()["octavo_num_requests_running"] == running)
    for opened in endless:
        opened.vanish(reset=True)
    server.wait_idle()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: ask(server, script(f"after {i}")), range(24)))
    assert [a.json()["choices"][0]["text"] for a in answers] == [f"after {i}" for i in range(24)]
    assert engine_of(server) not in before


def _has_ended(opened: RawStream) -> bool:
    """Whether the connection has been closed at the other end; what has come is read."""
    opened.socket.setblocking(False)
    try:
        while opened.read_some(65536):
            pass
    except BlockingIOError:
        return False
    return True


def test_counters_survive_a_death(server: RunningServer) -> None:
    for i in range(12):
        assert ask(server, script(f"{i}")).status_code == 200
    until(lambda: successes(server) == 12)
    time.sleep(0.6)

    def is_replaced(pid: int) -> bool:
        return pid not in front_ends(server) and len(front_ends(server)) == COUNT

    for pid in front_ends(server):
        os.kill(pid, signal.SIGKILL)
        until(functools.partial(is_replaced, pid))
    assert ask(server, script("one more")).status_code == 200
    until(lambda: successes(server) == 13)


def test_front_ends_that_die_again_and_again(server: RunningServer) -> None:
    for _ in range(6):
        until(lambda: len(front_ends(server)) == COUNT)
        os.kill(front_ends(server)[0], signal.SIGKILL)
        time.sleep(0.3)
    assert server.process.wait(timeout=15) == 1
    assert "front ends have died 6 times" in server.log_text()


def test_a_signal_lets_requests_of_all_finish(server: RunningServer, open_stream: Open) -> None:
    children = descendants(server.process.pid)
    streams = [stream(server, open_stream, TEXT) for _ in range(12)]
    server.process.send_signal(signal.SIGTERM)
    for opened in streams:
        assert assemble(parse_events(opened.read_rest())).texts == {0: TEXT}
    assert server.process.wait(timeout=20) == 0
    assert not any(is_alive(pid) for pid in children)
    assert "Traceback" not in server.log_text()
    address = urlsplit(server.url)
    with socket.create_server((address.hostname or "", address.port or 0)):
        pass  # the port is free


def test_the_engine_dies(server: RunningServer, open_stream: Open) -> None:
    children = descendants(server.process.pid)
    streams = [stream(server, open_stream, "abc ", "\x04\x05") for _ in range(6)]
    os.kill(engine_of(server), signal.SIGKILL)
    for opened in streams:
        events = parse_events(opened.read_rest())
        assert [event["error"]["code"] for event in events if "error" in event] == [503]
    assert httpx.get(f"{server.url}/health", timeout=5).status_code == 503
    assert server.process.wait(timeout=15) == 1
    until(lambda: not any(is_alive(pid) for pid in children))


def test_the_supervisor_dies(server: RunningServer) -> None:
    children = descendants(server.process.pid)
    server.process.kill()
    until(lambda: not any(is_alive(pid) for pid in children))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seed", "1"), "--seed draws from the order of requests"),
        (("--port", "{port}"), "port {port} is in use"),
        (("--chat-template", "{{% nothing"), "chat template"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], message: str, shared: RunningServer) -> None:
    port = str(urlsplit(shared.url).port)
    filled = [argument.replace("{port}", port) for argument in arguments]
    if "--port" not in arguments:
        filled += ["--port", "0"]
    result = octavo("serve", str(text_model_folder()), "--api-server-count", "2", *filled)
    assert result.returncode == 2
    assert message.replace("{port}", port) in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_several_models_have_one_front_end() -> None:
    result = octavo("serve", "--model", "a=smollm2", "--api-server-count", "2")
    assert result.returncode == 2
    assert "several models have one front end" in result.stderr.splitlines()[-1]
