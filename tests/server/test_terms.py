"""For whom a request is served, and until when."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from octavo.config import FairShareBy, SchedulingPolicy, ServerConfig
from octavo.errors import InvalidParameterError
from octavo.server.app import build_app
from octavo.server.kserve.parameters import engine_priority
from octavo.server.openai.cache_salt import key_hash
from octavo.server.openai.common_fields import TermsFields
from octavo.server.terms import Terms, terms_of
from octavo.text.assets import load_text_assets
from support.answers import COMPLETIONS, script
from support.engine_process import connected, engine_config
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
    policy = SchedulingPolicy.FCFS
    return terms_of(request, config or ServerConfig(), policy, 100.0, TermsFields(**body))


ASKED_S, HEADERS_S = 30, 40
"""Seconds that bodies and headers allow."""


def asked(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return body | {"priority": 3, "cache_salt": "salt", "timeout_s": ASKED_S, **fields}


USER = [{"role": "user", "content": "say"}]
MESSAGE = {"model": "tiny", "max_tokens": 2, "messages": USER}
TGI = {"inputs": "say", "parameters": {"max_new_tokens": 2}}
TRITON = {"text_input": "say", "priority": 2, "timeout": 30_000_000}
INPUT = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["say"]}
INFER = {"inputs": [INPUT], "parameters": {"priority": 2, "timeout": "30000000"}}


ASKS: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("/v1/completions", asked({"prompt": "say"}, user="me"), 3, "salt", "me"),
    ("/v1/completions", asked({"prompt": "say"}, user="me", use_beam_search=True, n=2), 3, "salt", "me"),
    ("/v1/chat/completions", asked({"messages": USER, "max_tokens": 2}, user="me"), 3, "salt", "me"),
    ("/v1/responses", asked({"input": "say", "max_output_tokens": 2}, user="me"), 3, "salt", "me"),
    ("/v1/embeddings", asked({"input": "say"}, user="me"), 3, "salt", "me"),
    ("/v1/messages", asked(MESSAGE, user="me"), 3, "salt", "me"),
    ("/v1/messages", asked(MESSAGE, metadata={"user_id": "you"}), 3, "salt", "you"),
    ("/v1/prefixes/a", asked({"prompt": "say" * 9}, user="me"), 3, "salt", "me"),
    ("/v1/prefixes/b", asked({"messages": USER, "add_generation_prompt": True}, user="me"), 3, "salt", "me"),
    ("/generate", TGI, 0, "", ""),
    ("/generate_stream", TGI, 0, "", ""),
    ("/v2/models/tiny/generate", TRITON, engine_priority(2), "", ""),
    ("/v2/models/tiny/generate_stream", TRITON, engine_priority(2), "", ""),
    ("/v2/models/tiny/infer", INFER, engine_priority(2), "", ""),
]  # fmt: skip
"""URL and body; then the priority, the salt and the user that the engine is to be told."""


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[httpx.AsyncClient, list[dict[str, Any]]]]:
    """A client of an application, and what its engine is told besides prompts."""
    told: list[dict[str, Any]] = []
    config = ServerConfig(
        served_model_names=("tiny",), salt_cache_by_api_key=True, fair_share_by=FairShareBy.USER
    )
    async with connected(
        engine_config(policy="priority"), module="octavo.engine.process"
    ) as client:
        generate = client.generate

        def listen(*arguments: Any, **terms: Any) -> Any:
            told.append(terms)
            return generate(*arguments, **terms)

        client.generate = listen  # type: ignore[method-assign]
        assets = load_text_assets(engine_config().model, None)
        app = build_app(client, assets, config, policy=SchedulingPolicy.PRIORITY)
        await app.state.serving.load()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            yield http, told
        app.state.serving.close()


async def test_every_route_hands_its_terms_to_the_engine() -> None:
    headers = {"authorization": "Bearer key", "x-request-timeout": str(HEADERS_S)}
    key = key_hash(Request({"type": "http", "headers": [(b"authorization", b"Bearer key")]}))
    async with listening() as (http, told):
        for url, body, priority, salt, user in ASKS:
            told.clear()
            method = "PUT" if "prefixes" in url else "POST"
            response = await http.request(method, url, json=body, headers=headers)
            assert response.status_code == 200, (url, response.text)
            assert told, url
            for terms in told:
                assert terms["priority"] == priority, url
                assert terms["cache_salt"] == f"{key} {salt}", url
                assert terms["tenant"] == f"{key} {user}", url
                assert 0 < terms["timeout_s"] <= (ASKED_S if priority else HEADERS_S), url


def test_a_priority_needs_the_policy() -> None:
    with pytest.raises(InvalidParameterError, match="--scheduling-policy priority; given: 1"):
        terms(priority=1)
    assert terms(priority=0).priority == 0


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


@pytest.mark.parametrize(
    ("url", "body", "status"),
    [
        ("/v2/models/tiny/generate", {"text_input": SLOW["prompt"], "timeout": 200_000}, 504),
        ("/generate", {"inputs": SLOW["prompt"]}, 504),
        ("/v1/responses", {"input": SLOW["prompt"], "timeout_s": 0.2}, 504),
        ("/v1/messages", {**MESSAGE, "messages": [{"role": "user", "content": SLOW["prompt"]}], "timeout_s": 0.2}, 504),
    ],
)  # fmt: skip
def test_a_deadline_ends_requests_of_every_dialect(
    http: httpx.Client, url: str, body: dict[str, Any], status: int
) -> None:
    headers = {"x-request-timeout": "0.2"} if url == "/generate" else {}
    long = {"max_tokens": 400} if url not in ("/generate", "/v1/responses") else {}
    response = http.post(url, json={**body, **long}, headers=headers)
    assert response.status_code == status, response.text
    assert "time" in response.text


@pytest.mark.parametrize("timeout", [0, None])
def test_no_timeout_of_triton_is_no_limit(http: httpx.Client, timeout: int | None) -> None:
    body = {"text_input": script("ok"), "exclude_input_in_output": True, "timeout": timeout}
    assert http.post("/v2/models/tiny/generate", json=body).json()["text_output"] == "ok"


@pytest.mark.parametrize("value", [0, -1, "1", True])
def test_a_time_is_a_number_above_0(http: httpx.Client, value: object) -> None:
    response = http.post(COMPLETIONS, json={"prompt": "x", "timeout_s": value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "timeout_s"
