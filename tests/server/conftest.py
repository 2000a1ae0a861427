"""One server for the whole folder: real processes and sockets, an engine that says what prompts tell it to."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.scripted_engine import MODULE
from support.server_process import (
    MODEL_NAME,
    RunningServer,
    running_server,
    tiny_config,
    write_long_text_model,
)

MAX_MODEL_LEN = 1024


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny text model, with sampling defaults of its own."""
    folder = tmp_path_factory.mktemp("model") / MODEL_NAME
    write_long_text_model(folder, MAX_MODEL_LEN)
    return folder


@pytest.fixture(scope="session")
def server(model_folder: Path) -> Iterator[RunningServer]:
    """A ready server."""
    with running_server(
        tiny_config(model_folder),
        engine_module=MODULE,
        served_model_names=(MODEL_NAME, "alias"),
        max_body_bytes=200_000,
        max_prompts_per_request=16,
        allowed_origins=("http://page.example",),
    ) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of the server. Nothing may be left in the engine when a test ends."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
    server.wait_idle()
