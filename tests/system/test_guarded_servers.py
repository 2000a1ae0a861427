"""API keys and TLS where there are several models or several front ends: who has no key or speaks no TLS gets nothing."""

import contextlib
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

import anthropic
import httpx
import openai
import pytest

from octavo.evaluation.processes import descendants
from octavo.server.models.settings import ModelSettings
from support.answers import COMPLETIONS, script
from support.certificates import Authority
from support.models_server import running_models
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config

KEY, OTHER_KEY = "the-key", "another-key"
MODEL = "tiny"
Start: TypeAlias = Callable[..., AbstractContextManager[RunningServer]]

ROUTES = (
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/v1/models/load"),
    ("POST", "/v1/models/unload"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/x"),
    ("DELETE", "/v1/responses/x"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("PUT", "/v1/prefixes/x"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/generate"),
    ("POST", "/generate_stream"),
    ("POST", "/chat_tokenize"),
    ("GET", "/info"),
    ("POST", "/"),
    ("GET", "/"),
    ("GET", "/v2"),
    ("GET", "/v2/health/live"),
    ("GET", "/v2/models/tiny"),
    ("GET", "/v2/models/tiny/ready"),
    ("HEAD", "/v2/models/tiny/ready"),
    ("GET", "/v2/models/stats"),
    ("POST", "/v2/models/tiny/infer"),
    ("POST", "/v2/models/tiny/generate"),
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/tiny/load"),
    ("POST", "/v2/repository/models/tiny/unload"),
    ("GET", "/metrics"),
    ("GET", "/load"),
    ("GET", "/version"),
    ("GET", "/ping"),
    ("HEAD", "/ping"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/health/"),
    ("GET", "/none"),
)
SHAPES = {
    "/v1/messages": {"type", "error"},
    "/generate": {"error", "error_type"},
    "/chat_tokenize": {"error", "error_type"},
    "/info": {"error", "error_type"},
    "/v2": {"error"},
}
"""The names at the top of an error's body, by the beginning of the path; else OpenAI's, whose error is an object."""


@pytest.fixture(scope="module", params=["several models", "several front ends"])
def start(request: pytest.FixtureRequest, merged_model: Path) -> Start:
    """Starts a server with settings; it answers as `tiny`."""
    engine = tiny_config(merged_model, num_blocks=2048)

    def start(**server: Any) -> AbstractContextManager[RunningServer]:
        if request.param == "several models":
            models = [ModelSettings(MODEL, engine), ModelSettings("second", engine)]
            return running_models(models, engine_module=SCRIPTED, **server)
        return running_server(engine, engine_module=SCRIPTED, api_server_count=2, **server)

    return start


@pytest.fixture(scope="module")
def guarded(start: Start) -> Iterator[RunningServer]:
    with start(api_keys=(KEY, OTHER_KEY)) as server:
        yield server


@pytest.fixture
def http(guarded: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded.url, timeout=30) as client:
        yield client


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer the-ke"}], ids=["none", "wrong"])
def test_every_route_but_health_is_closed(http: httpx.Client, headers: dict[str, str]) -> None:
    for method, path in ROUTES:
        response = http.request(method, path, headers=headers)
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            found = [shape for begin, shape in SHAPES.items() if path.startswith(begin)]
            assert set(response.json()) == (found[0] if found else {"error"}), path
            has_object = path.startswith("/v1") or path in ("/tokenize", "/metrics", "/none")
            assert isinstance(response.json()["error"], dict) or not has_object
    assert http.get("/health").status_code == http.head("/health").status_code == 200


def test_keys_open_every_dialect(http: httpx.Client) -> None:
    chat = {"messages": [{"role": "user", "content": script("hello")}], "max_tokens": 8}
    for path, body in (
        (COMPLETIONS, {"prompt": script("hello"), "max_tokens": 8}),
        ("/v1/chat/completions", chat),
        ("/v1/messages", {"model": MODEL, **chat}),
        ("/v1/responses", {"input": script("hello"), "max_output_tokens": 8}),
        ("/generate", {"inputs": script("hello")}),
        ("/v2/models/tiny/generate", {"text_input": script("hello")}),
    ):
        for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": OTHER_KEY}):
            response = http.post(path, json=body, headers=headers)
            assert response.status_code == 200, response.text
            assert "hello" in response.text


def test_clients_raise_their_own_errors(guarded: RunningServer) -> None:
    messages: Any = [{"role": "user", "content": script("hello")}]
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="no", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="needs an API key"):
            client.chat.completions.create(model=MODEL, messages=messages)
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
    with anthropic.Anthropic(base_url=guarded.url, api_key="no", max_retries=0) as claude:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            claude.messages.create(model=MODEL, max_tokens=8, messages=messages)
        body: Any = refused.value.body
        assert body["error"]["type"] == "authentication_error"
    with anthropic.Anthropic(base_url=guarded.url, api_key=KEY, max_retries=0) as claude:
        answer = claude.messages.create(model=MODEL, max_tokens=8, messages=messages)
        assert answer.usage.output_tokens == 6


def test_responses_belong_to_their_key(guarded: RunningServer) -> None:
    """Also where another process or another model is asked."""
    url = f"{guarded.url}/v1/responses"

    def ask(method: str, path: str, key: str, **body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.request(method, path, headers=headers, timeout=30, json=body or None)

    made = ask("POST", url, KEY, input=script("hello"), max_output_tokens=8).json()
    for _ in range(6):
        assert ask("GET", f"{url}/{made['id']}", KEY).json() == made
        assert ask("GET", f"{url}/{made['id']}", OTHER_KEY).status_code == 404
        assert ask("DELETE", f"{url}/{made['id']}", OTHER_KEY).status_code == 404
        follow = ask("POST", url, OTHER_KEY, input="x", previous_response_id=made["id"])
        assert follow.status_code == 404


def test_tls(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with start(wait=False, ssl_certfile=str(certificate), ssl_keyfile=str(key)) as server:
        url = server.url.replace("http:", "https:")

        def get(path: str, verify: ssl.SSLContext | bool = trusting) -> httpx.Response:
            return httpx.get(f"{url}{path}", verify=verify, timeout=10)

        deadline = time.monotonic() + 60
        is_ready = False
        while not is_ready:
            assert time.monotonic() < deadline and server.process.poll() is None, server.log_text()
            with contextlib.suppress(httpx.TransportError):
                is_ready = get("/health").status_code == 200
        body = {"prompt": script("hello"), "max_tokens": 8, "model": MODEL}
        for _ in range(6):  # each over a connection of its own: every front end shows it
            answer = httpx.post(f"{url}{COMPLETIONS}", json=body, verify=trusting, timeout=30)
            assert answer.json()["choices"][0]["text"] == "hello"
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                get("/health", verify=True)
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{server.url}/health", timeout=10)
        children = descendants(server.process.pid)
        assert server.terminate() == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
