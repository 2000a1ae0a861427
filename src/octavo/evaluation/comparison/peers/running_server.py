"""A peer's server on this machine: started for one leg, loaded, ended."""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from octavo.evaluation.comparison.peers.family import Family, adopting_orphans
from octavo.evaluation.comparison.peers.peer import PeerError, ServerCommand
from octavo.evaluation.comparison.peers.program import last_words
from octavo.evaluation.processes import descendants, process_use

HOST = "127.0.0.1"
START_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 3600.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers."""

    port: int
    pid: int
    started: float
    """When its process was started, by `time.perf_counter`."""

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON that it answers with. Raises PeerError."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
            if response.status != http.client.OK:
                raise PeerError(f"{path} answered {response.status}: {data[:200]!r}")
            found: dict[str, Any] = json.loads(data)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PeerError(f"{path}: {type(error).__name__} {error}") from error
        finally:
            connection.close()
        return found

    def pss_bytes(self) -> int:
        """Memory of all its processes, shared pages divided among them."""
        return sum(process_use(pid).pss_bytes for pid in (self.pid, *descendants(self.pid)))


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running_server(command: ServerCommand, port: int) -> Iterator[RunningServer]:
    """Start a server and wait until it is healthy. Raises PeerError with its last words if it ends before."""
    with tempfile.TemporaryFile("w+") as log, adopting_orphans():
        started = time.perf_counter()
        process = subprocess.Popen(
            command.arguments, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, **command.environment},
        )  # fmt: skip
        try:
            _wait_until_healthy(process, port, log)
            yield RunningServer(port, process.pid, started)
        finally:
            family = Family(process.pid)
            _stop(process)
            family.end()


def module_command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """A command of Octavo's own, in a process of its own, and the variables with which it finds this Octavo."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return [sys.executable, "-m", "octavo", *arguments], {"PYTHONPATH": path}


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: IO[str]) -> None:
    end = time.perf_counter() + START_TIMEOUT_S
    while time.perf_counter() < end:
        if process.poll() is not None:
            log.seek(0)
            raise PeerError(f"the server ended before it was ready: {last_words(log.read())}")
        if _is_healthy(port):
            return
        time.sleep(_POLL_S)
    raise PeerError(f"the server was not ready within {START_TIMEOUT_S:.0f} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
