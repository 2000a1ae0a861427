"""A real server of several models for tests."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from octavo.config import ServerConfig
from octavo.engine.process import MODULE as ENGINE
from octavo.server.models.settings import ModelSettings
from support.server_process import RunningServer, free_loopback_port, started

MODULE = "support.models_main"


@contextlib.contextmanager
def running_models(
    models: Sequence[ModelSettings],
    *,
    engine_module: str = ENGINE,
    wait: bool = True,
    **server: Any,
) -> Iterator[RunningServer]:
    """A server on a free loopback port. Fields in `server` go to `ServerConfig`."""
    config = ServerConfig(**{"port": free_loopback_port(), **server})
    start = {"models": list(models), "server": config, "engine_module": engine_module}
    with started(MODULE, start, f"http://127.0.0.1:{config.port}", wait=wait) as running:
        yield running
