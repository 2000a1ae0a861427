"""Servers for tests of the whole: real processes, real sockets, real clients."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from support.merged_tokens import write_merged_text_model
from support.raw_stream import RawStream
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import (
    MODEL_NAME,
    RunningServer,
    free_loopback_port,
    running_server,
    tiny_config,
    write_long_text_model,
)

SCRIPTED_MAX_LEN = 4096


@pytest.fixture(scope="session")
def merged_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose tokenizer has " Paris" as one token; long context."""
    folder = tmp_path_factory.mktemp("merged") / MODEL_NAME
    write_merged_text_model(folder, SCRIPTED_MAX_LEN)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights, whose every byte is a token."""
    folder = tmp_path_factory.mktemp("tiny") / MODEL_NAME
    write_long_text_model(folder, 512)
    return folder


@pytest.fixture(scope="session")
def scripted(merged_model: Path) -> Iterator[RunningServer]:
    """A server whose engine says what the prompts tell it to; support.scripted_engine."""
    config = tiny_config(merged_model, num_blocks=16384, max_num_seqs=512)
    with running_server(config, engine_module=SCRIPTED) as server:
        yield server


@pytest.fixture(scope="session")
def real(tiny_model: Path) -> Iterator[RunningServer]:
    """A server over a real model and a real sampler."""
    with running_server(tiny_config(tiny_model, num_blocks=2048)) as server:
        yield server


@pytest.fixture(scope="session")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real server with room for tools that are explained: a token is a character here."""
    folder = tmp_path_factory.mktemp("roomy") / MODEL_NAME
    write_long_text_model(folder, 2048)
    with running_server(tiny_config(folder, num_blocks=1024)) as server:
        yield server
        server.wait_idle()


@pytest.fixture
def scripted_http(scripted: RunningServer) -> Iterator[httpx.Client]:
    """A client of the scripted server, which must be idle afterwards."""
    with httpx.Client(base_url=scripted.url, timeout=60) as client:
        yield client
    scripted.wait_idle()


@pytest.fixture
def real_http(real: RunningServer) -> Iterator[httpx.Client]:
    """A client of the real server, which must be idle afterwards."""
    with httpx.Client(base_url=real.url, timeout=60) as client:
        yield client
    real.wait_idle()


@pytest.fixture
def openai_client(real: RunningServer) -> Iterator[openai.OpenAI]:
    """The official client, on the real server."""
    with openai.OpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as client:
        yield client
    real.wait_idle()


@pytest.fixture
async def async_openai(real: RunningServer) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official asynchronous client, on the real server."""
    client = openai.AsyncOpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0)
    async with client:
        yield client
    real.wait_idle()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    return free_loopback_port()


@pytest.fixture
def open_stream() -> Iterator[Callable[..., RawStream]]:
    """`RawStream`, whose sockets are closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def open_one(url: str, path: str, body: dict[str, Any], **options: Any) -> RawStream:
            stream = RawStream(url, path, body, **options)
            stack.callback(stream.socket.close)
            return stream

        yield open_one
