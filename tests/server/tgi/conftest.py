"""A server with a real sampler, for options that change what is drawn."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.server_process import running_server, tiny_config


@pytest.fixture(scope="session")
def real_http(model_folder: Path) -> Iterator[httpx.Client]:
    """A client of a server with a real model."""
    with (
        running_server(tiny_config(model_folder)) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        yield client
        server.wait_idle()


@pytest.fixture(scope="session")
def real_http_answer(real_http: httpx.Client) -> Callable[[dict[str, Any] | None], str]:
    """Asks /generate of a real model for 24 tokens, or without any parameters; the text."""

    def ask(parameters: dict[str, Any] | None) -> str:
        body: dict[str, Any] = {"inputs": "abcabc"}
        if parameters is not None:
            body["parameters"] = {"max_new_tokens": 24, **parameters}
        response = real_http.post("/generate", json=body)
        assert response.status_code == 200, response.text
        text: str = response.json()["generated_text"]
        return text

    return ask
