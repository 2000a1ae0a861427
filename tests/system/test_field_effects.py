"""Each field that a request model declares does something or is refused; the table is tests/support/field_effects.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.server.openai.requests import ChatRequest, CompletionRequest
from support.field_effects import (
    CHAT,
    COMPLETION,
    GENERATION,
    PRINTABLE,
    Effect,
    Elsewhere,
    Refusal,
    Row,
)

ROOT = Path(__file__).resolve().parents[2]
BASE = {"max_tokens": 12, "seed": 3, "allowed_token_ids": PRINTABLE}
COMPLETIONS = (
    "/v1/completions",
    {**BASE, "prompt": "say"},
    CompletionRequest,
    {**GENERATION, **COMPLETION},
)
CHATS = (
    "/v1/chat/completions",
    {**BASE, "messages": [{"role": "user", "content": "say"}]},
    ChatRequest,
    {**GENERATION, **CHAT},
)  # fmt: skip


@pytest.mark.parametrize(("model", "table"), [COMPLETIONS[2:], CHATS[2:]])
def test_the_table_has_every_field(model: Any, table: Mapping[str, Row]) -> None:
    assert set(model.model_fields) == set(table)


@pytest.mark.parametrize(
    ("url", "base", "name", "row"),
    [
        pytest.param(url, base, name, row, id=f"{url.rpartition('/v1/')[2]}-{name}")
        for url, base, _, table in (COMPLETIONS, CHATS)
        for name, row in table.items()
    ],
)
def test_a_field_does_what_it_says(
    real_http: httpx.Client, url: str, base: dict[str, Any], name: str, row: Row
) -> None:
    if isinstance(row, Elsewhere):
        assert row.test in (ROOT / row.file).read_text(), f"{row.file} says nothing of {name}"
        return
    fields = {**base, **row.base}
    if isinstance(row, Refusal):
        response = real_http.post(url, json={**fields, name: row.value})
        assert response.status_code == row.status, response.text
        assert response.json()["error"]["param"] == name
        return
    assert isinstance(row, Effect)
    without = real_http.post(url, json=fields)
    assert without.status_code == 200, without.text
    value = row.value(without.json()) if callable(row.value) else row.value
    changed = real_http.post(url, json={**fields, name: value})
    assert changed.status_code == 200, changed.text
    assert row.sees(changed.json()) != row.sees(without.json())
