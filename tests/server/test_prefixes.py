"""/v1/prefixes: pinned, shown, found, given up, expired."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.server_process import RunningServer

URL = "/v1/prefixes"
SYSTEM = "You answer in short sentences, in plain words, and say so when you do not know. " * 2
NUM_TOKENS = 1 + len(SYSTEM)


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client; what a test has pinned is given up after it."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
        for salt in ({}, {"cache_salt": "a"}):
            for prefix in client.get(URL, params=salt).json()["data"]:
                client.delete(f"{URL}/{prefix['name']}", params=salt)
    server.wait_idle()


def put(http: httpx.Client, name: str = "system", **body: Any) -> httpx.Response:
    return http.put(f"{URL}/{name}", json={"prompt": SYSTEM, **body})


def cached(http: httpx.Client, **more: Any) -> int:
    body = {"prompt": SYSTEM + f"{time.perf_counter()}", "max_tokens": 1, **more}
    usage = http.post("/v1/completions", json=body).json()["usage"]
    count: int = usage["prompt_tokens_details"]["cached_tokens"]
    return count


def test_its_cost_is_shown(http: httpx.Client, server: RunningServer) -> None:
    made = put(http, ttl_s=100).json()
    assert (made["name"], made["object"], made["num_tokens"]) == ("system", "prefix", NUM_TOKENS)
    assert made["num_blocks"] == NUM_TOKENS // 16
    assert made["num_bytes"] % made["num_blocks"] == 0 and made["num_bytes"] > 0
    assert 95 < made["expires_in_s"] <= 100
    shown = http.get(f"{URL}/system").json()
    for name in ("name", "num_tokens", "num_blocks", "num_bytes"):
        assert shown[name] == made[name]
    assert [p["name"] for p in http.get(URL).json()["data"]] == ["system"]
    assert server.metrics()["octavo_kv_blocks_pinned"] == made["num_blocks"]


def test_it_survives_what_evicts_others(http: httpx.Client) -> None:
    assert put(http).status_code == 200
    for i in range(40):  # 256 pages of 16 tokens, 40 prompts of 10 pages
        http.post("/v1/completions", json={"prompt": f"{i} " * 80, "max_tokens": 1})
    assert cached(http) >= NUM_TOKENS // 16 * 16
    assert http.delete(f"{URL}/system").json() == {
        "name": "system",
        "object": "prefix",
        "deleted": True,
    }
    for i in range(40):
        http.post("/v1/completions", json={"prompt": f"{i}! " * 60, "max_tokens": 1})
    assert cached(http) < 16


def test_it_expires_and_can_be_renewed(http: httpx.Client) -> None:
    put(http, ttl_s=0.3)
    time.sleep(0.2)
    again = put(http, ttl_s=1.0).json()
    assert again["cached_tokens"] >= NUM_TOKENS - 1  # nothing is computed twice
    time.sleep(0.3)
    assert http.get(f"{URL}/system").status_code == 200
    time.sleep(0.8)
    assert http.get(f"{URL}/system").status_code == 404
    assert http.get(URL).json()["data"] == []


def test_messages_are_the_beginning_of_conversations(http: httpx.Client) -> None:
    messages = [{"role": "system", "content": SYSTEM}]
    made = http.put(f"{URL}/talk", json={"messages": messages}).json()
    body = {"messages": [*messages, {"role": "user", "content": "hi"}], "max_tokens": 1}
    usage = http.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= made["num_blocks"] * 16


def test_salts_see_only_their_own(http: httpx.Client) -> None:
    assert put(http, cache_salt="a").status_code == 200
    assert http.get(f"{URL}/system").status_code == 404
    assert http.delete(f"{URL}/system").status_code == 404
    assert http.get(f"{URL}/system", params={"cache_salt": "a"}).status_code == 200
    assert cached(http, cache_salt="a") >= NUM_TOKENS // 16 * 16
    assert cached(http, cache_salt="b") == 0


def test_their_share_is_bounded(http: httpx.Client) -> None:
    for i in range(4):
        response = put(http, f"p{i}", prompt=[5 + (i + 7 * j) % 190 for j in range(400)])
        if response.status_code != 200:
            break
    assert i == 2  # 25 pages each, a quarter of 256 in all
    assert response.status_code == 400
    assert "64 of the 256 blocks" in response.json()["error"]["message"]
    assert len(http.get(URL).json()["data"]) == 2


@pytest.mark.parametrize(
    ("name", "body", "param"),
    [
        ("a", {"prompt": "short"}, "prompt"),
        ("a b", {"prompt": SYSTEM}, "name"),
        ("x" * 65, {"prompt": SYSTEM}, "name"),
        ("a", {"prompt": SYSTEM, "ttl_s": 0}, "ttl_s"),
        ("a", {"prompt": SYSTEM, "ttl_s": "1"}, "ttl_s"),
        ("a", {"prompt": [1, 2, 9999]}, "prompt"),
        ("a", {}, "prompt"),
        ("a", {"prompt": "x" * 2000}, "prompt"),
    ],
)
def test_mistakes_are_named(
    http: httpx.Client, name: str, body: dict[str, Any], param: str
) -> None:
    response = http.put(f"{URL}/{name}", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert http.get(URL).json()["data"] == []
