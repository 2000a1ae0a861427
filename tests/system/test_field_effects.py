"""Each field that a request model declares does something or is refused; the tables are tests/support/field_effects."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.field_effects.endpoints import ENDPOINTS, PREFIX, Endpoint, set_fields
from support.field_effects.openai import PREFIX_SALTS
from support.field_effects.rows import TEXT, Effect, Elsewhere, Json, Refusal, Row
from support.server_process import (
    MODEL_NAME,
    RunningServer,
    running_server,
    tiny_config,
    write_long_text_model,
)

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{{ documents or '' }}{{ reasoning_effort or '' }}{{ mood or '' }}"
    "{% if add_generation_prompt %}<|turn|>assistant:{% endif %}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real model whose template shows what it is given, and a server that takes templates from requests."""
    folder = tmp_path_factory.mktemp("fields") / MODEL_NAME
    write_long_text_model(folder, 2048)
    with running_server(
        tiny_config(folder, num_blocks=2048),
        chat_template=TEMPLATE,
        trust_request_chat_template=True,
        tool_call_parser="hermes",
    ) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of it; named prefixes are given up after each test."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
        client.delete(PREFIX)
        for salt in PREFIX_SALTS:
            client.delete(PREFIX, params={"cache_salt": salt})
    server.wait_idle()


def ask(http: httpx.Client, endpoint: Endpoint, fields: Json) -> httpx.Response:
    placed = {f"{endpoint.at}.{name}": value for name, value in fields.items()}
    body = set_fields(endpoint.base, placed if endpoint.at else fields)
    return http.request(endpoint.method, endpoint.url, json=body)


def read(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        data = [line[5:] for line in response.text.splitlines() if line.startswith("data:")]
        return {"events": [json.loads(event) for event in data if event.strip() != "[DONE]"]}
    answer = response.json()
    return answer[0] if isinstance(answer, list) else answer


def check_effect(http: httpx.Client, endpoint: Endpoint, name: str, row: Effect) -> None:
    if row.warm:
        read(ask(http, endpoint, row.base))
    without = read(ask(http, endpoint, row.base))
    value = row.value(without) if callable(row.value) else row.value
    changed = read(ask(http, endpoint, set_fields(row.base, {name: value})))
    assert row.seen.of(changed) != row.seen.of(without), f"{row.seen.what} stays: {changed}"


def check_refusal(http: httpx.Client, endpoint: Endpoint, name: str, row: Refusal) -> None:
    response = ask(http, endpoint, set_fields(row.base, {name: row.value}))
    assert response.status_code == row.status, response.text
    assert (row.says or name.rpartition(".")[2]) in response.text


def content(answer: Any) -> str:
    """An answer without what is of one request only; of a stream its text, which may be cut anywhere."""
    if "events" in answer:
        return str(TEXT.of(answer))
    text = json.dumps(answer, sort_keys=True)
    parts = [part for part in text.split(", ") if not any(mark in part for mark in ONE_REQUESTS)]
    return ", ".join(parts)


ONE_REQUESTS = ("id", "created", "_at", "cached", "input_tokens_details")


@pytest.mark.parametrize(
    ("endpoint", "name", "row"),
    [
        pytest.param(endpoint, name, row, id=f"{endpoint.title}-{name}")
        for endpoint in ENDPOINTS
        for name, row in endpoint.table.items()
        if not isinstance(row, Elsewhere)
    ],
)
def test_a_field_does_what_it_says(
    http: httpx.Client, endpoint: Endpoint, name: str, row: Row
) -> None:
    if isinstance(row, Effect):
        check_effect(http, endpoint, name, row)
    elif isinstance(row, Refusal):
        check_refusal(http, endpoint, name, row)
    elif not isinstance(row, Elsewhere):
        without = read(ask(http, endpoint, row.base))
        with_it = read(ask(http, endpoint, set_fields(row.base, {name: row.value})))
        assert content(with_it) == content(without)
