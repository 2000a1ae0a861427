"""Requests that schemathesis makes from the served OpenAPI description, right and wrong ones: each gets an answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from support.server_process import MODEL_NAME, RunningServer, running_server, tiny_config

TIMEOUT_S = 60
MAX_MODEL_LEN = 96
FEW, MANY = 1_000, 10_000


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[RunningServer]:
    """A real model with a short context: an answer without a limit ends soon."""
    config = tiny_config(tiny_model, num_blocks=64, max_model_len=MAX_MODEL_LEN)
    with running_server(config) as running:
        yield running


@pytest.mark.parametrize("num_requests", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_every_request_gets_an_answer_and_the_engine_lives(
    server: RunningServer, num_requests: int
) -> None:
    probe = {"prompt": "probe", "max_tokens": 8, "temperature": 0}
    expected = httpx.post(f"{server.url}/v1/completions", json=probe).json()["choices"]
    operations = operations_of(server)
    # Routes without a body have little to vary, and nothing that could be wrong.
    shares = [8 if operation.body else 1 for operation in operations]
    statuses: dict[int, int] = {}
    for operation, share in zip(operations, shares, strict=True):
        num_examples = max(2, num_requests * share // sum(shares))
        if not operation.body:
            run(server, operation, GenerationMode.POSITIVE, num_examples, statuses)
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            run(server, operation, mode, num_examples // 2, statuses)
    assert {200, 400, 404} <= set(statuses), statuses
    assert sum(statuses.values()) >= 0.8 * num_requests, statuses
    server.wait_idle()
    assert httpx.post(f"{server.url}/v1/completions", json=probe).json()["choices"] == expected
    assert "Traceback" not in server.log_text()


def operations_of(server: RunningServer) -> list[Any]:
    """All operations of the API."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    results: list[Any] = list(schema.get_all_operations())
    return [result.ok() for result in results]


def run(
    server: RunningServer,
    operation: Any,
    mode: Any,
    num_examples: int,
    statuses: dict[int, int],
) -> None:
    """Send requests for one operation and count the statuses of the answers."""

    session = requests.Session()

    @settings(
        max_examples=num_examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), names_the_model=st.booleans())
    def send(case: Any, names_the_model: bool) -> None:
        if names_the_model and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = MODEL_NAME  # else hardly any request gets past it
        response = case.call(base_url=server.url, timeout=TIMEOUT_S, session=session)
        status = response.status_code
        statuses[status] = statuses.get(status, 0) + 1
        # Who gives a request no time is told that it has passed.
        is_late = status == 504 and isinstance(case.body, dict) and case.body.get("timeout_s")
        said = response.text
        assert status < 500 or is_late, (operation.label, case.body, said, server.log_text())

    with session:
        send()
