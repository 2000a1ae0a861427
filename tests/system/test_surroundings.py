"""A server that is started in poor surroundings works, or says in one line what it lacks."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from octavo.engine.endpoint import Endpoint
from octavo.engine.process import start_engine_process
from octavo.errors import ConfigError
from support.answers import complete, script
from support.command import environment
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import running_server, tiny_config
from support.text_model import text_model_folder


@contextlib.contextmanager
def command(
    *arguments: str | bytes, shell: str = 'exec "$@"', **options: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """`octavo serve` in the surroundings that a line of shell makes for it; ended whatever happens."""
    serve = (sys.executable, "-m", "octavo", "serve", "--backend", "reference")
    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", *serve, *arguments], env=environment(), **options
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert process.poll() is None, f"it has ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_without_standard_streams(free_port: int) -> None:
    model = str(text_model_folder())
    url = f"http://127.0.0.1:{free_port}"
    with command(model, "--port", str(free_port), shell='exec "$@" <&- >&- 2>&-') as process:
        wait_until(lambda: is_healthy(url), process)
        with httpx.Client(base_url=url) as http:
            for _ in range(5):  # connections come and go where the streams would be
                assert http.get("/v1/models", headers={"connection": "close"}).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_in_a_folder_that_is_gone(free_port: int, tmp_path: Path) -> None:
    model = str(text_model_folder())
    url = f"http://127.0.0.1:{free_port}"
    shell = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    with command(model, "--port", str(free_port), shell=shell, cwd=tmp_path) as process:
        wait_until(lambda: is_healthy(url), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("where", ["path", "name"])
def test_a_name_that_is_not_text(tmp_path: Path, where: str) -> None:
    if where == "path":
        link = tmp_path / "\udcff"
        link.symlink_to(text_model_folder())
        arguments: tuple[str | bytes, ...] = (os.fsencode(link),)
    else:
        arguments = (str(text_model_folder()), "--served-model-name", b"\xff")
    with command(*arguments, "--port", "0", stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        with process.stderr:
            (line,) = process.stderr.read().splitlines()
        assert process.wait(timeout=20) == 2
    assert line.startswith(b"octavo: the model's name must be valid UTF-8")


def test_on_ipv6(merged_model: Path) -> None:
    config = tiny_config(merged_model)
    with running_server(config, engine_module=SCRIPTED, host="::1", wait=False) as server:
        port = urlsplit(server.url).port
        url = f"http://[::1]:{port}"
        wait_until(lambda: is_healthy(url), server.process)
        with httpx.Client(base_url=url) as http:
            assert complete(http, script("six")).text == "six"
        assert server.terminate() == 0
        assert f"ready at {url}" in server.log_text()


def test_without_a_folder_for_the_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="TMPDIR"):
        Endpoint.create()


def test_settings_that_cannot_be_sent_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be started"):
        start_engine_process(tiny_config(Path("/\udcff")))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(ConfigError, match="cannot be started"):
        start_engine_process(tiny_config(Path("/model")))
    assert list(tmp_path.iterdir()) == []
