"""A server with a real sampler, for parameters that change what is drawn."""

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
def real_generate(real_http: httpx.Client) -> Callable[..., dict[str, Any]]:
    """Asks generate of a real model for 24 tokens; the answer."""

    def ask(parameters: dict[str, Any], **fields: Any) -> dict[str, Any]:
        body = {
            "text_input": "abcabc",
            "exclude_input_in_output": True,
            "parameters": {"max_tokens": 24, **parameters},
            **fields,
        }
        response = real_http.post("/v2/models/tiny/generate", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    return ask
