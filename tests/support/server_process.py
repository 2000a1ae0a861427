"""Real servers for tests: a front end process and its engine process, ended by their ids whatever the test does."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from octavo.config import (
    Backend,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
    ServerConfig,
)
from support.text_model import write_text_model

MODULE = "support.server_main"
START_TIMEOUT_S = 60.0
MODEL_NAME = "tiny"


@dataclass
class RunningServer:
    """A server that was started by a test."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for /health to be 200. Fails at once if the process has ended."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the server has ended:\n{self.log_text()}"
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the server is not ready:\n{self.log_text()}")

    def log_text(self) -> str:
        """Everything both processes have written."""
        return self.log.read_text(errors="replace")

    def engine_pid(self) -> int:
        """The process id of the engine: the front end's only child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (pid,) = children.split()
        return int(pid)

    def metrics(self) -> dict[str, float]:
        """Every sample without its labels; where several have a name, their sum."""
        values: dict[str, float] = {}
        for line in httpx.get(f"{self.url}/metrics", timeout=10).text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                values[name] = values.get(name, 0.0) + float(value)
        return values

    def wait_idle(self, timeout_s: float = 10.0) -> None:
        """Wait until nothing runs or waits and no page is referenced; all pages are accounted for then."""
        deadline = time.monotonic() + timeout_s
        while True:
            values = self.metrics()
            busy = {
                name: values[name]
                for name in (
                    "vllm:num_requests_running",
                    "vllm:num_requests_waiting",
                    "octavo_kv_blocks_referenced",
                )
                if values[name]
            }
            if not busy:
                break
            assert time.monotonic() < deadline, f"not idle after {timeout_s} s: {busy}"
            time.sleep(0.02)
        free = values["octavo_kv_blocks_free"] + values["octavo_kv_blocks_cached"]
        assert free == values["octavo_kv_blocks"]

    def terminate(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """End both processes at once."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def tiny_config(
    model: Path, *, num_blocks: int = 256, max_model_len: int | None = None, **scheduler: Any
) -> EngineConfig:
    """The tiny text model on the reference backend."""
    return EngineConfig(
        model=ModelConfig(model=str(model), max_model_len=max_model_len),
        cache=CacheConfig(num_blocks=num_blocks),
        scheduler=SchedulerConfig(**scheduler),
        backend=Backend.REFERENCE,
    )


def write_long_text_model(folder: Path, max_len: int) -> None:
    """The tiny text model with a longer context."""
    write_text_model(folder)
    path = folder / "config.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "max_position_embeddings": max_len})
    )


@contextlib.contextmanager
def running_server(
    engine: EngineConfig,
    *,
    engine_module: str = "octavo.engine.process",
    wait: bool = True,
    limits: Mapping[int, int] | None = None,
    **server: Any,
) -> Iterator[RunningServer]:
    """A server on a free loopback port. Fields in `server` go to `ServerConfig`; `limits` are soft RLIMIT_ values."""
    options: dict[str, Any] = {
        "port": free_loopback_port(),
        "served_model_names": (MODEL_NAME,),
        **server,
    }
    start = {
        "engine": engine,
        "server": ServerConfig(**options),
        "engine_module": engine_module,
        "limits": limits or {},
    }
    with started(MODULE, start, f"http://127.0.0.1:{options['port']}", wait=wait) as running:
        yield running


@contextlib.contextmanager
def started(module: str, start: object, url: str, *, wait: bool) -> Iterator[RunningServer]:
    """A module of a server's process that reads `start` from its standard input, as JSON."""
    with tempfile.TemporaryDirectory(prefix="octavo-server-") as folder:
        log = Path(folder) / "log"
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
            )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(msgspec.json.encode(start))
        running = RunningServer(process, url, log)
        try:
            if wait:
                running.wait_ready()
            yield running
        finally:
            running.kill()


def free_loopback_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
