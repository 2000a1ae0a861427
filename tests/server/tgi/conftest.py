"""A server with a real sampler, for options that change what is drawn."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.server_process import running_server, tiny_config


@pytest.fixture(scope="session")
def real_http_answer(model_folder: Path) -> Iterator[Callable[[dict[str, Any] | None], str]]:
    """Asks /generate of a real model for 24 tokens, or without any parameters; the text."""
    with (
        running_server(tiny_config(model_folder)) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):

        def ask(parameters: dict[str, Any] | None) -> str:
            body: dict[str, Any] = {"inputs": "abcabc"}
            if parameters is not None:
                body["parameters"] = {"max_new_tokens": 24, **parameters}
            response = client.post("/generate", json=body)
            assert response.status_code == 200, response.text
            text: str = response.json()["generated_text"]
            return text

        yield ask
        server.wait_idle()
