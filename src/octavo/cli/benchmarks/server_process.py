"""A server of its own for `octavo bench serve`: the same as `octavo serve`, but its settings and its facts are JSON.

Run as a module. Reads one line from standard input and writes one to standard output when it is ready; it ends,
after a drain, when standard input does.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from octavo.config import EngineConfig, ServerConfig
from octavo.engine.messages import Ready
from octavo.errors import ConfigError
from octavo.server.serve import serve
from octavo.text.assets import TextAssets

MODULE = "octavo.cli.benchmarks.server_process"
STOP_TIMEOUT_S = 30.0


class StartLine(msgspec.Struct, frozen=True):
    """What the process reads."""

    engine: EngineConfig
    server: ServerConfig


class ReadyLine(msgspec.Struct, frozen=True):
    """What it writes."""

    url: str
    ready: Ready


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server in processes of its own."""

    pid: int
    """Of the front end; the engine is its child."""
    url: str
    ready: Ready
    start_s: float
    """From the start of the process to its being ready."""


@contextmanager
def started_server(engine: EngineConfig, server: ServerConfig) -> Iterator[StartedServer]:
    """Start a server, wait until it is ready, and end it at last. Raises ConfigError if it ends before it is ready.

    What it logs goes to standard error.
    """
    # The child finds the same modules as this process, not those of the current folder.
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(StartLine(engine, server)) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise ConfigError(f"the server ended before it was ready: exit code {process.wait()}")
        facts = msgspec.json.decode(line, type=ReadyLine)
        yield StartedServer(process.pid, facts.url, facts.ready, time.perf_counter() - start)
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> int:
    """Serve until standard input ends; the exit code."""
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING
    )
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=StartLine)

    def announce(url: str, ready: Ready, _: TextAssets) -> None:
        threading.Thread(target=_end_with_input, daemon=True).start()
        sys.stdout.buffer.write(msgspec.json.encode(ReadyLine(url, ready)) + b"\n")
        sys.stdout.buffer.flush()

    return serve(start.engine, start.server, on_ready=announce)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
