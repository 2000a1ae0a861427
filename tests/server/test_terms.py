"""For whom a request is served, and until when."""

import time
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from octavo.config import FairShareBy, ServerConfig
from octavo.errors import InvalidParameterError
from octavo.server.terms import Terms, terms_of
from support.answers import COMPLETIONS, script
from support.sse import read_stream

SLOW = {"prompt": script("\x04" + "slow " * 60), "max_tokens": 400}


def terms(
    key: str | None = None,
    timeout: str | None = None,
    config: ServerConfig | None = None,
    **body: Any,
) -> Terms:
    headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    if timeout is not None:
        headers.append((b"x-request-timeout", timeout.encode()))
    request = Request({"type": "http", "headers": headers})
    return terms_of(request, config or ServerConfig(), 100.0, **body)


def test_tenants_are_keys_unless_told_otherwise() -> None:
    assert terms("one").tenant == terms("one", user="u").tenant != terms("two").tenant
    assert "one" not in terms("one").tenant
    by_user = ServerConfig(fair_share_by=FairShareBy.USER)
    users = [
        terms(key, config=by_user, user=user).tenant
        for key in ("a", "b")
        for user in ("u", "v", None)
    ]
    assert len(set(users)) == 6
    nothing = ServerConfig(fair_share_by=FairShareBy.NOTHING)
    assert terms("one", config=nothing) == terms("two", config=nothing) == Terms()


def test_the_shortest_time_counts() -> None:
    limited = ServerConfig(request_timeout_s=5.0)
    assert terms().deadline is None and terms().seconds_left is None
    assert terms(timeout="2.5").deadline == 102.5
    assert terms(timeout="2.5", timeout_s=1.0).deadline == 101.0
    assert terms(timeout="60", config=limited).deadline == 105.0
    assert terms(config=limited, timeout_s=2.0).deadline == 102.0
    left = Terms(deadline=time.perf_counter() + 10).seconds_left
    assert left is not None and 9 < left <= 10


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", ""])
def test_a_header_without_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="x-request-timeout must be"):
        terms(timeout=text)


@pytest.mark.parametrize("how", ["field", "header"])
def test_a_request_that_takes_too_long_is_a_504(http: httpx.Client, how: str) -> None:
    body = {**SLOW, "timeout_s": 0.2} if how == "field" else SLOW
    headers = {"x-request-timeout": "0.2"} if how == "header" else {}
    start = time.perf_counter()
    response = http.post(COMPLETIONS, json=body, headers=headers)
    assert response.status_code == 504, response.text
    assert response.json()["error"]["type"] == "DeadlineExceededError"
    assert 0.2 <= time.perf_counter() - start < 2.0


def test_a_stream_says_so_where_it_ends(http: httpx.Client) -> None:
    response = http.post(COMPLETIONS, json={**SLOW, "timeout_s": 0.3, "stream": True})
    assert response.status_code == 200
    assert '"code":504' in response.text and '"choices"' in response.text
    assert '"finish_reason":"abort"' not in response.text


def test_a_request_in_time_is_as_any_other(http: httpx.Client) -> None:
    body = {"prompt": script("in time"), "max_tokens": 20}
    plain = http.post(COMPLETIONS, json=body).json()["choices"][0]["text"]
    timed = http.post(COMPLETIONS, json={**body, "timeout_s": 30}).json()["choices"][0]["text"]
    assert plain == timed == "in time"
    stream = read_stream(http.post(COMPLETIONS, json={**body, "timeout_s": 30, "stream": True}))
    assert stream.texts == {0: "in time"}


@pytest.mark.parametrize("value", [0, -1, "1", True])
def test_a_time_is_a_number_above_0(http: httpx.Client, value: object) -> None:
    response = http.post(COMPLETIONS, json={"prompt": "x", "timeout_s": value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "timeout_s"
