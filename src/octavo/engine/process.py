"""The engine process: how it is started, and what it does from its first to its last line.

Imports here are few: the front end starts the process before it loads anything else, so that both load at once.
The front end owns the end: signals that a terminal or a service manager sends to the whole group are ignored here,
and the process ends by `Drain`, by being killed, or with its parent.
"""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from octavo.config import EngineConfig
from octavo.core.step import Runner
from octavo.engine.endpoint import Endpoint
from octavo.errors import ConfigError, EngineDeadError, OctavoError
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.engine.loop import Engine
    from octavo.engine.messages import Ready

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
ORPHAN_EXIT_CODE = 3
MODULE = "octavo.engine.process"


class StartMessage(msgspec.Struct, frozen=True):
    """What the new process reads from its standard input, as JSON."""

    config: EngineConfig
    directory: str
    num_clients: int
    parent_pid: int
    die_with_parent: bool
    """Whether the kernel may end the engine when the thread that started it ends."""
    log_level: int
    label: str
    """What its lines in the log begin with."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A started engine process, as its parent sees it."""

    popen: "subprocess.Popen[bytes]"
    endpoint: Endpoint
    num_clients: int = 1

    @property
    def pid(self) -> int:
        """The process id."""
        return self.popen.pid

    @property
    def client_index(self) -> int:
        """Whoever started it is its first client."""
        return 0

    @property
    def is_own(self) -> bool:
        """Whoever started it ends it."""
        return True

    def wait(self) -> int:
        """Wait until the process has ended; its exit code."""
        return self.popen.wait()

    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self.popen.poll() is not None

    def stop(self) -> None:
        """End the process at once, frozen or not."""
        self.popen.kill()

    def connected(self) -> None:
        """The only client is connected: if all are killed from now on, nothing is left behind."""
        if self.num_clients == 1:
            self.endpoint.remove()

    def kill(self) -> None:
        """End the process at once, frozen or not, wait until it is gone, and remove its folder."""
        self.popen.kill()
        self.popen.wait()
        self.endpoint.remove()


def start_engine_process(
    config: EngineConfig, *, module: str = MODULE, num_clients: int = 1, label: str = "engine"
) -> EngineProcess:
    """Start `python -m module` as an engine process. Returns at once; an `EngineClient` follows its loading.

    The child finds the same modules as this process, not those of the current folder. Raises ConfigError for settings
    that are no Unicode text, and if the system lets no process or folder be made.
    """
    endpoint = Endpoint.create()
    try:
        popen = _start(config, endpoint, module, num_clients, label)
    except (OSError, UnicodeEncodeError) as error:
        endpoint.remove()
        raise ConfigError(f"the engine process cannot be started: {error}") from error
    return EngineProcess(popen, endpoint, num_clients)


def _start(
    config: EngineConfig, endpoint: Endpoint, module: str, num_clients: int, label: str
) -> "subprocess.Popen[bytes]":
    message = StartMessage(
        config=config,
        directory=str(endpoint.directory),
        num_clients=num_clients,
        parent_pid=os.getpid(),
        die_with_parent=threading.current_thread() is threading.main_thread(),
        log_level=logging.getLogger("octavo").getEffectiveLevel(),
        label=label,
    )
    data = msgspec.json.encode(message)
    popen = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path)),
        start_new_session=True,  # Ctrl-C in the terminal reaches the front end only
    )
    assert popen.stdin is not None
    # A pipe that is broken already belongs to a process that has ended: the client will report that.
    with contextlib.suppress(BrokenPipeError), popen.stdin as pipe:
        pipe.write(data)
    return popen


def run_engine_process(
    config: EngineConfig,
    endpoint: Endpoint,
    wrap_runner: Callable[[Runner], Runner] | None = None,
    *,
    num_clients: int = 1,
    parent_pid: int | None = None,
) -> int:
    """Load the model, serve until drained, and return the exit code: 0 after `Drain`, 1 after a failure.

    `wrap_runner` is for tests with a runner of theirs. With `parent_pid` the process ends when that is no longer its
    parent.
    """
    # The heavy imports, after the process has said that it lives.
    from octavo.engine.channel import Channel, EngineEnd
    from octavo.engine.messages import EngineFailed, Loading
    from octavo.engine.pulse import Heart, Pulse
    from octavo.engine.several_clients import SeveralClients

    channel: Channel = (
        EngineEnd(endpoint) if num_clients == 1 else SeveralClients(endpoint, num_clients)
    )
    pulse = Pulse(endpoint.pulse)
    channel.send(Loading("importing", 0.0))
    heart = Heart(pulse, lambda: _end_if_orphaned(parent_pid))
    heart.start()
    try:
        from octavo.engine.service import EngineService

        engine, ready = _build(
            config, lambda stage, fraction: channel.send(Loading(stage, fraction)), wrap_runner
        )
        channel.send(ready)
        try:
            return EngineService(engine, channel, pulse).run()
        finally:
            engine.close()
    except OctavoError as error:  # raised on purpose, its message says all
        channel.send(EngineFailed(type(error).__name__, str(error)))
        return 1
    except Exception as error:  # the boundary of the process: the front end reports it
        logger.exception("the engine process has failed")
        channel.send(EngineFailed(EngineDeadError.__name__, f"{type(error).__name__}: {error}"))
        return 1
    finally:
        heart.stop()
        channel.close()


def _build(
    config: EngineConfig, progress: Progress, wrap_runner: Callable[[Runner], Runner] | None
) -> "tuple[Engine, Ready]":
    """The engine of whatever kind of model this is."""
    from octavo.checkpoints.locate import locate
    from octavo.models.encoder import is_encoder

    path = locate(config.model.model, revision=config.model.revision, progress=progress)
    if is_encoder(path):
        from octavo.engine.encoder import build_encoder

        return build_encoder(config, path, progress=progress)
    from octavo.engine.build import build_engine

    built = build_engine(config, progress=progress, wrap_runner=wrap_runner)
    return built.engine, built.ready


def main(wrap_runner: Callable[[Runner], Runner] | None = None) -> int:
    """Run the engine process that `start_engine_process` describes on standard input."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=StartMessage)
    if start.die_with_parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _end_if_orphaned(start.parent_pid)
    logging.basicConfig(
        level=start.log_level,
        format=f"%(asctime)s %(levelname)s {start.label.replace('%', '%%')} %(name)s: %(message)s",
    )
    if start.config.cpus is not None:
        _keep_to(start.config.cpus)
    return run_engine_process(
        start.config,
        Endpoint(Path(start.directory)),
        wrap_runner,
        num_clients=start.num_clients,
        parent_pid=start.parent_pid,
    )


def _keep_to(cpus: tuple[int, ...]) -> None:
    """Bind this process before it has threads: they inherit it. A container may forbid it."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        logger.warning("could not be bound to CPUs %s and may meet other engines: %s", cpus, error)


def _end_if_orphaned(parent_pid: int | None) -> None:
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(ORPHAN_EXIT_CODE)  # there is nobody to report to, and a step may be running


if __name__ == "__main__":
    sys.exit(main())
