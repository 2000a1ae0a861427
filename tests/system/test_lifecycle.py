"""From the first connection to the exit code."""

import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.config import Backend
from support.answers import COMPLETIONS, complete, script
from support.raw_stream import RawStream
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config
from support.slow_engine import LOAD_S
from support.slow_engine import MODULE as SLOW
from support.sse import assemble, parse_events

Open: TypeAlias = Callable[..., RawStream]

API_ROUTES = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")


def wait_for_port(server: RunningServer) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            httpx.get(f"{server.url}/version", timeout=5)
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline, server.log_text()
            time.sleep(0.01)


def test_answers_while_the_model_loads(tiny_model: Path) -> None:
    with running_server(tiny_config(tiny_model), engine_module=SLOW, wait=False) as server:
        wait_for_port(server)
        with httpx.Client(base_url=server.url, timeout=10) as http:
            health = http.get("/health")
            assert health.status_code == 503
            assert health.headers["retry-after"] == "1"
            progress = health.json()
            assert progress["status"] == "loading"
            assert isinstance(progress["stage"], str) and 0 <= progress["fraction"] <= 1
            assert progress["error"]["code"] == 503
            assert "loading" in progress["error"]["message"]
            for route in API_ROUTES:
                response = http.post(route, json={"prompt": "x"})
                assert response.status_code == 503
                assert response.json()["status"] == "loading"
            assert http.get("/v1/models").status_code == 503
            assert http.get("/version").status_code == 200
            assert http.get("/metrics").status_code == 200
            assert http.get("/load").json() == {"server_load": 0}
            server.wait_ready(LOAD_S + 20)
            assert complete(http, "x", max_tokens=2, ignore_eos=True, seed=1).num_tokens == 2


def test_sigterm_while_loading(tiny_model: Path) -> None:
    with running_server(tiny_config(tiny_model), engine_module=SLOW, wait=False) as server:
        wait_for_port(server)
        started = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - started < 10


def test_sigterm_before_anything(tiny_model: Path) -> None:
    with running_server(tiny_config(tiny_model), wait=False) as server:
        time.sleep(0.6)
        assert server.terminate() in (0, -signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_finish(
    merged_model: Path, open_stream: Open, number: signal.Signals
) -> None:
    text = "a sentence that takes a while " * 4
    with running_server(tiny_config(merged_model), engine_module=SCRIPTED) as server:
        bodies = [
            {"prompt": script("\x04" + text), "max_tokens": 500, "stream": stream}
            for stream in (True, False)
        ]
        streamed, whole = [open_stream(server.url, COMPLETIONS, body) for body in bodies]
        assert streamed.read_headers() == 200
        server.process.send_signal(number)
        deadline = time.monotonic() + 5
        while httpx.get(f"{server.url}/health", timeout=5).status_code == 200:
            assert time.monotonic() < deadline
        refused = httpx.post(server.url + COMPLETIONS, json={"prompt": "x"}, timeout=5)
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["error"]["message"]
        stream = assemble(parse_events(streamed.read_rest()))
        assert (stream.texts, stream.finish_reasons) == ({0: text}, {0: ["stop"]})
        assert whole.read_headers() == 200
        assert text in whole.read_rest()
        assert server.process.wait(timeout=20) == 0
        assert "Traceback" not in server.log_text()


def test_requests_that_do_not_finish_in_time_are_aborted(
    merged_model: Path, open_stream: Open
) -> None:
    config = tiny_config(merged_model)
    with running_server(config, engine_module=SCRIPTED, shutdown_timeout_s=0.5) as server:
        body = {"prompt": script("\x04\x05abc "), "max_tokens": 3000, "stream": True}
        stream = open_stream(server.url, COMPLETIONS, body)
        assert stream.read_headers() == 200
        assert server.terminate() == 0
        assert assemble(parse_events(stream.read_rest())).finish_reasons == {0: ["abort"]}


def test_a_second_signal_does_not_wait(merged_model: Path, open_stream: Open) -> None:
    with running_server(tiny_config(merged_model), engine_module=SCRIPTED) as server:
        body = {"prompt": script("\x04\x05abc "), "max_tokens": 3000, "stream": True}
        assert open_stream(server.url, COMPLETIONS, body).read_headers() == 200
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) == 1
        assert time.monotonic() - started < 12


def test_an_idle_keep_alive_connection_does_not_delay_the_exit(merged_model: Path) -> None:
    with (
        running_server(tiny_config(merged_model), engine_module=SCRIPTED) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        assert http.get("/health").status_code == 200
        started = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - started < 5


def test_an_address_in_use_is_an_error(tiny_model: Path, scripted: RunningServer) -> None:
    taken = urlsplit(scripted.url).port
    with running_server(tiny_config(tiny_model), wait=False, port=taken) as server:
        assert server.process.wait(timeout=20) == 2
        assert f"port {taken} is in use; choose another with --port" in server.log_text()


def test_a_model_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with running_server(tiny_config(tmp_path), wait=False) as server:
        assert server.process.wait(timeout=20) == 2
        assert f"octavo: {tmp_path}" in server.log_text()
        assert "ERROR" not in server.log_text()  # said once


def test_a_broken_tokenizer_is_an_error(tiny_model: Path, tmp_path: Path) -> None:
    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer.json").write_text("{")
    with running_server(tiny_config(tmp_path), wait=False) as server:
        assert server.process.wait(timeout=20) == 2
        assert "tokenizer" in server.log_text()


def test_only_loopback_is_bound(scripted: RunningServer) -> None:
    address = (
        "127.0.0.2",
        urlsplit(scripted.url).port or 0,
    )  # also this machine, but not what was bound
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=2)


def test_ctrl_c_reaches_the_front_end_only(scripted: RunningServer) -> None:
    assert os.getsid(scripted.process.pid) != os.getsid(scripted.engine_pid())


BROKEN_ENVIRONMENTS: dict[str, tuple[dict[str, str], dict[str, int], str]] = {
    "an instruction set that does not exist": (
        {"OCTAVO_ISA": "quantum"},
        {},
        "OCTAVO_ISA must be one of",
    ),
    "a context beyond the pool": (
        {},
        {"num_blocks": 1, "max_model_len": 32},
        "max_model_len must be at most 16",
    ),
    "a context beyond the model": (
        {},
        {"max_model_len": 100_000},
        "max_model_len must be at most 512",
    ),
}


@pytest.mark.parametrize("name", BROKEN_ENVIRONMENTS)
def test_what_only_the_engine_can_know_is_one_line_too(
    tiny_model: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, settings, message = BROKEN_ENVIRONMENTS[name]
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    config = replace(tiny_config(tiny_model, **settings), backend=Backend.NATIVE)
    with running_server(config, wait=False) as server:
        assert server.process.wait(timeout=20) == 2
        log = server.log_text()
        assert message in log.splitlines()[-1]
        assert "Traceback" not in log


def test_memory_that_is_not_there_is_named(tiny_model: Path) -> None:
    config = replace(tiny_config(tiny_model, num_blocks=400_000), backend=Backend.NATIVE)
    with running_server(config, wait=False, limits={resource.RLIMIT_AS: 1 << 30}) as server:
        assert server.process.wait(timeout=20) == 2
        log = server.log_text()
        assert "there is not enough memory; in bytes: " in log.splitlines()[-1]
        assert "Traceback" not in log
