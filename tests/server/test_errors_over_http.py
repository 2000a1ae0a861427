"""Every mistake of a client is an answer in one shape, with the right status, and hurts nobody else."""

import contextlib
import gzip
import http.client
import json
import re
import select
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from support.server_process import RunningServer

POST_ROUTES = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, after checking its shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert type(error["code"]) is int
    assert isinstance(error["message"], str) and error["message"]
    assert error["param"] is None or isinstance(error["param"], str)
    assert isinstance(error["type"], str) and error["type"].endswith("Error")
    return error


def probe(http: httpx.Client) -> None:
    """The server still answers, and rightly."""
    response = http.post("/v1/completions", json={"prompt": "<unk>ok<unk>"})
    assert response.json()["choices"][0]["text"] == "ok"


@pytest.mark.parametrize("route", POST_ROUTES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'\xef\xbb\xbf{"a":1}', b'{"n":1,"n":2}', b'{"n": NaN}']
)
def test_what_is_not_a_json_object(http: httpx.Client, route: str, body: bytes) -> None:
    response = http.post(route, content=body, headers={"content-type": "application/json"})
    assert error_of(response, 400)["type"] == "BadRequestError"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "", None]
)
def test_another_content_type(http: httpx.Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = http.post("/v1/completions", content=b'{"prompt":"x"}', headers=headers)
    error_of(response, 415)


@pytest.mark.parametrize("route", POST_ROUTES)
def test_a_compressed_body(http: httpx.Client, route: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = http.post(route, content=gzip.compress(b'{"prompt":"x"}'), headers=headers)
    assert "must not be compressed; given: gzip" in error_of(response, 415)["message"]


def test_a_content_type_with_parameters(http: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = http.post("/v1/completions", content=b'{"prompt":"<unk>a<unk>"}', headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("route", POST_ROUTES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_another_method(http: httpx.Client, route: str, method: str) -> None:
    response = http.request(method, route)
    error_of(response, 405)
    assert response.headers["allow"] == "POST"


def test_another_route(http: httpx.Client) -> None:
    assert "/v1/nothing" in error_of(http.get("/v1/nothing"), 404)["message"]


@pytest.mark.parametrize("route", POST_ROUTES)
def test_another_model(http: httpx.Client, route: str) -> None:
    body = {"prompt": "x", "tokens": [1], "messages": [{"role": "user", "content": "x"}]}
    if route == "/tokenize":
        body = {"prompt": "x"}
    error = error_of(http.post(route, json={**body, "model": "gpt-4"}), 404)
    assert error["message"] == ("The model `gpt-4` does not exist. This server has: tiny, alias.")
    assert (error["type"], error["param"]) == ("NotFoundError", "model")


def test_every_name_of_the_model_is_served(http: httpx.Client) -> None:
    for name in ("tiny", "alias", None):
        response = http.post("/v1/completions", json={"prompt": "<unk>a<unk>", "model": name})
        assert response.json()["model"] == "tiny"


@pytest.mark.parametrize("sends_length", [True, False])
def test_a_body_that_is_too_large(http: httpx.Client, sends_length: bool) -> None:
    body = json.dumps({"prompt": "x" * 300_000}).encode()
    content = body if sends_length else iter([body[:1000], body[1000:]])
    response = http.post(
        "/v1/completions", content=content, headers={"content-type": "application/json"}
    )
    assert "200000" in error_of(response, 413)["message"]
    probe(http)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_token_ids", [5] * 4097),
        ("bad_words", ["a"] * 1025),
        ("bad_words", ["a" * 8193]),
        ("stop", ["a"] * 257),
        ("stop", "a" * 8193),
        ("stop", ["a" * 4097, "b" * 4096]),
    ],
)
def test_what_would_make_everyone_wait(http: httpx.Client, name: str, value: object) -> None:
    error = error_of(http.post("/v1/completions", json={"prompt": "x", name: value}), 400)
    assert error["param"] == name
    assert re.search("at most [0-9]+", error["message"])
    probe(http)


def test_more_fields_than_anyone_needs(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={f"f{i}": 1 for i in range(1001)})
    assert "at most 1000 fields; given: 1001" in error_of(response, 400)["message"]


def test_more_bodies_than_memory_is_meant_for(server: RunningServer, http: httpx.Client) -> None:
    """Seventeen clients are about to send 199 kB each; there is room for sixteen of 200 kB."""
    body = json.dumps({"prompt": "<unk>ok<unk>", "metadata": "x" * 199_000}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    address = urlsplit(server.url)
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(17):
            place = (address.hostname, address.port or 0)
            clients.append(stack.enter_context(socket.create_connection(place, timeout=10)))
            clients[-1].sendall(head.encode() + body[:-10])
        refused, _, _ = select.select(clients, [], [], 10)
        (late,) = refused
        answer = late.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in answer
        for client in clients:
            if client is not late:
                client.sendall(body[-10:])
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
    probe(http)


def test_a_nesting_bomb(http: httpx.Client) -> None:
    body = b'{"messages":' + b"[" * 90_000
    headers = {"content-type": "application/json"}
    response = http.post("/v1/chat/completions", content=body, headers=headers)
    error_of(response, 400)
    probe(http)


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("max_tokens", "ten", "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 0, "max_tokens"),
        ("temperature", -0.1, "temperature"),
        ("stop", 5, "stop"),
        ("stop", [""], "stop"),
        ("logprobs", 21, "logprobs"),
        ("stop_token_ids", [260], "stop_token_ids"),
        ("allowed_token_ids", [-1], "allowed_token_ids"),
        ("logit_bias", {"260": 1}, "logit_bias"),
        ("priority", 5, "priority"),
        ("suffix", "x", "suffix"),
        ("seed", 10**30, "seed"),
        ("max_tokens", 10**30, "max_tokens"),
        ("n", 257, "n"),
        ("temperature", 1e31, "temperature"),
        ("repetition_penalty", 1e300, "repetition_penalty"),
        ("repetition_penalty", 1e-300, "repetition_penalty"),
        ("logit_bias", {"1_0": 1}, "logit_bias"),
        ("logit_bias", {"05": 1}, "logit_bias"),
        ("logit_bias", {" 5": 1}, "logit_bias"),
        ("logit_bias", {"9" * 4000: 1}, "logit_bias"),
        ("priority", 2**63, "priority"),
    ],
)
def test_wrong_values(http: httpx.Client, name: str, value: object, param: str | None) -> None:
    for stream in (False, True):
        body = {"prompt": "x", name: value, "stream": stream}
        error = error_of(http.post("/v1/completions", json=body), 400)
        assert error["param"] == param


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([], "empty list"),
        ([[]], "empty"),
        ([[5], []], "prompt 1 is empty"),
        ([5, 260], "from 0 to 259; given: 260"),
        ([[5], [-1]], "from 0 to 259; given: -1"),
        ([5, True], "prompt must be"),
        (["x"] * 17, "at most 16 texts; given: 17"),
        ("x" * 1024, "maximum context length is 1024 tokens"),
        (["x", "x" * 2000, "x"], "maximum context length is 1024 tokens"),
    ],
)
def test_wrong_prompts(http: httpx.Client, prompt: object, says: str) -> None:
    response = http.post("/v1/completions", json={"prompt": prompt, "stream": True})
    assert says in error_of(response, 400)["message"]


def test_an_overflow_before_the_stream_starts(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "x" * 1000}]
    body = {"messages": messages, "max_tokens": 500, "stream": True}
    error = error_of(http.post("/v1/chat/completions", json=body), 400)
    assert error["message"] == (
        "This model's maximum context length is 1024 tokens. However, you requested 1519 tokens "
        "(1019 in the messages, 500 in the completion). "
        "Please reduce the length of the messages or completion."
    )


def test_unknown_fields_are_named_in_the_header(http: httpx.Client) -> None:
    body = {
        "messages": [{"role": "user", "content": "<unk>a<unk>", "id": "m1"}],
        "temprature": 1,
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "stop": None,
        "n": None,
        "logit_bias": None,
    }
    for stream in (False, True):
        response = http.post("/v1/chat/completions", json={**body, "stream": stream})
        assert response.status_code == 200
        assert response.headers["x-octavo-ignored-fields"] == "temprature, messages.id"
    assert "x-octavo-ignored-fields" not in http.post("/tokenize", json={"prompt": "a"}).headers


def test_an_unknown_field_is_logged_once(server: RunningServer, http: httpx.Client) -> None:
    for _ in range(3):
        http.post("/v1/completions", json={"prompt": "<unk>a<unk>", "once_only": 1})
    assert server.log_text().count("once_only") == 1


def test_request_ids(http: httpx.Client) -> None:
    given = {"x-request-id": "my-id-1"}
    response = http.post("/v1/completions", json={"prompt": "<unk>a<unk>"}, headers=given)
    assert response.headers["x-request-id"] == "my-id-1"
    assert response.json()["id"] == "cmpl-my-id-1"
    made = http.get("/version").headers["x-request-id"]
    assert len(made) == 32
    too_long = http.get("/version", headers={"x-request-id": "x" * 1000})
    assert len(too_long.headers["x-request-id"]) == 32
    failed = http.post("/v1/completions", json={}, headers=given)
    assert failed.headers["x-request-id"] == "my-id-1"


def test_the_same_request_id_twice_at_once(http: httpx.Client) -> None:
    body = {"prompt": ["<unk>a<unk>"] * 2, "request_id": "same"}
    first, second = (http.post("/v1/completions", json=body).json() for _ in range(2))
    assert first["id"] == second["id"] == "cmpl-same"
    assert first["choices"] == second["choices"]


def test_cors_only_for_configured_origins(http: httpx.Client) -> None:
    good = http.get("/version", headers={"origin": "http://page.example"})
    assert good.headers["access-control-allow-origin"] == "http://page.example"
    bad = http.get("/version", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in bad.headers


def test_a_client_that_sends_half_a_body_and_goes(
    server: RunningServer, http: httpx.Client
) -> None:
    port = urlsplit(server.url).port
    with socket.create_connection(("127.0.0.1", port or 0)) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b'Content-Length: 1000\r\n\r\n{"prompt":'
        )
    probe(http)


def test_what_is_not_http(server: RunningServer, http: httpx.Client) -> None:
    port = urlsplit(server.url).port
    with socket.create_connection(("127.0.0.1", port or 0), timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00garbage\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    probe(http)


def test_head_and_keep_alive(server: RunningServer) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    for _ in range(3):
        connection.request("GET", "/health")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
    connection.close()
