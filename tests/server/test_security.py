"""API keys, TLS, a root path, CORS and the size of bodies, over real sockets."""

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.api_key_file import all_api_keys
from octavo.server.api_keys import api_key_of
from octavo.server.tls import tls_context
from support.certificates import Authority
from support.scripted_engine import MODULE
from support.server_process import RunningServer, running_server, tiny_config

KEYS = ("first-key", "second-key")
PROMPT = {"prompt": "<unk>hello<unk>", "max_tokens": 8}


@pytest.fixture(scope="module")
def guarded(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with keys from both places, behind a root path, for one page."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# of the team\n\nthird-key\n")
    with running_server(
        tiny_config(model_folder),
        engine_module=MODULE,
        api_keys=KEYS,
        api_key_file=str(file),
        root_path="/llm",
        allowed_origins=("http://page.example",),
        allowed_methods=("POST",),
        allowed_headers=("authorization",),
        allow_credentials=True,
    ) as running:
        yield running


@pytest.fixture
def client(guarded: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded.url, timeout=30) as client:
        yield client


def routes(client: httpx.Client) -> list[tuple[str, str]]:
    """Every route that there is, as the server describes them, and those that it does not."""
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    paths = client.get("/openapi.json", headers=headers).json()["paths"]
    described = [(method, path) for path, methods in paths.items() for method in methods]
    return [
        *described,
        ("get", "/docs"),
        ("get", "/redoc"),
        ("get", "/openapi.json"),
        ("get", "/no"),
    ]


def test_every_route_but_health_is_closed(client: httpx.Client) -> None:
    asked = routes(client)
    assert len(asked) > 30
    for method, path in asked:
        for where in (path, f"/llm{path}"):
            response = client.request(method, where.replace("{", "").replace("}", ""))
            if path == "/health":
                assert response.status_code == 200
            else:
                assert response.status_code == 401, where
                assert response.headers["www-authenticate"] == "Bearer"
                assert "x-request-id" in response.headers


LIKE_HEALTH = (
    *("//health", "/health/", "/health/..", "/health/../v1/models", "/v1/models/health", "/HEALTH"),
    *("/health%2f..%2fv1%2fmodels", "/llm/llm/health", "/health;x", "/llm//health"),
)


@pytest.mark.parametrize("path", LIKE_HEALTH)
def test_nothing_that_looks_like_health_is_open(guarded: RunningServer, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert b" 401 " in first_line(guarded, head)


def first_line(server: RunningServer, head: str) -> bytes:
    """The beginning of the answer to bytes as they are: httpx would tidy them."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(head.encode())
        return raw.makefile("rb").readline()


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first-key"},
        {"authorization": "bearer second-key"},
        {"authorization": "Bearer third-key"},
        {"x-api-key": "third-key"},
    ],
)
def test_each_key_opens(client: httpx.Client, headers: dict[str, str]) -> None:
    for path in ("/v1/completions", "/llm/v1/completions"):
        response = client.post(path, json=PROMPT, headers=headers)
        assert response.json()["choices"][0]["text"] == "hello"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer first-ke"},
        {"authorization": "Bearer first-key2"},
        {"authorization": "first-key"},
        {"authorization": "Basic first-key"},
        {"authorization": b"Bearer \xff\xfe"},
        {"x-api-key": ""},
        {"authorization": "Bearer wrong", "x-api-key": "first-key"},
    ],
)
def test_nothing_else_opens(client: httpx.Client, headers: dict[str, str]) -> None:
    response = client.post("/v1/completions", json=PROMPT, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "UnauthorizedError"


def test_each_api_says_it_in_its_shape(client: httpx.Client) -> None:
    assert set(client.post("/generate").json()) == {"error", "error_type"}
    assert set(client.post("/v2/models/tiny/infer").json()) == {"error"}
    for path in ("/v1/messages", "/llm/v1/messages/count_tokens"):
        assert client.post(path).json()["error"]["type"] == "authentication_error"


def test_a_request_without_a_key_is_not_read(guarded: RunningServer) -> None:
    """A body that is announced and never sent: the answer comes all the same."""
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
    assert b" 401 " in first_line(guarded, head)


def test_a_preflight_needs_no_key_and_grants_only_what_is_configured(client: httpx.Client) -> None:
    def preflight(origin: str, method: str, header: str) -> httpx.Response:
        return client.options(
            "/v1/completions",
            headers={
                "origin": origin,
                "access-control-request-method": method,
                "access-control-request-headers": header,
            },
        )

    granted = preflight("http://page.example", "POST", "authorization")
    assert granted.status_code == 200
    assert granted.headers["access-control-allow-origin"] == "http://page.example"
    assert granted.headers["access-control-allow-credentials"] == "true"
    for refused in (
        preflight("http://other.example", "POST", "authorization"),
        preflight("http://page.example", "DELETE", "authorization"),
        preflight("http://page.example", "POST", "x-secret"),
    ):
        assert refused.status_code == 400


def test_ids_of_requests_come_back(client: httpx.Client) -> None:
    assert client.get("/health", headers={"X-Request-Id": "abc"}).headers["x-request-id"] == "abc"


def test_keys_do_not_show() -> None:
    assert "first-key" not in repr(ServerConfig(api_keys=KEYS))


@pytest.mark.parametrize("key", ["", "with space", "ключ", "a\nb"])
def test_keys_that_no_header_can_carry_are_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="API key number 1") as refused:
        all_api_keys(ServerConfig(api_keys=(key,)))
    assert not key or key not in str(refused.value)


def test_a_key_file_without_keys_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for content in ("", "# nothing\n"):
        file.write_text(content)
        with pytest.raises(ConfigError, match="there is no key"):
            all_api_keys(ServerConfig(api_key_file=str(file)))
    with pytest.raises(ConfigError, match="api_key_file"):
        all_api_keys(ServerConfig(api_key_file=str(tmp_path / "none")))


def test_the_key_of_a_request() -> None:
    assert api_key_of(Headers({"authorization": "BEARER  a "})) == "a"
    assert api_key_of(Headers({"x-api-key": "b"})) == "b"
    assert api_key_of(Headers({"authorization": "Basic c", "x-api-key": "b"})) == "b"
    assert api_key_of(Headers({})) == ""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs certificates for 127.0.0.1."""
    return Authority(tmp_path_factory.mktemp("certificates"))


def test_tls_serves_a_certificate_and_answers_nothing_in_the_clear(
    model_folder: Path, authority: Authority
) -> None:
    certificate, key = authority.sign("server")
    with running_server(
        tiny_config(model_folder),
        engine_module=MODULE,
        wait=False,
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
    ) as server:
        url = server.url.replace("http:", "https:")
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        with httpx.Client(base_url=url, verify=trusting, timeout=30) as client:
            wait_healthy(server, client)
            body = {**PROMPT, "stream": True}
            streamed = client.post("/v1/completions", json=body).text
            assert streamed.endswith("data: [DONE]\n\n")
            frames = [frame for frame in streamed.split("\n\n") if '"text"' in frame]
            texts = [json.loads(frame[6:])["choices"][0]["text"] for frame in frames]
            assert "".join(texts) == "hello"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/health", timeout=10)
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"{url}/health", timeout=10)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health", verify=old, timeout=10)
        assert server.terminate() == 0


def test_clients_must_show_a_certificate_where_that_is_asked(
    model_folder: Path, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.sign("server")
    own, own_key = authority.sign("client")
    stranger, stranger_key = Authority(tmp_path).sign("client")
    with running_server(
        tiny_config(model_folder),
        engine_module=MODULE,
        wait=False,
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
        ssl_ca_certs=str(authority.certificate),
        ssl_cert_reqs=2,
    ) as server:
        url = server.url.replace("http:", "https:")

        def context(pair: tuple[Path, Path] | None) -> ssl.SSLContext:
            made = ssl.create_default_context(cafile=str(authority.certificate))
            if pair is not None:
                made.load_cert_chain(*pair)
            return made

        with httpx.Client(base_url=url, verify=context((own, own_key)), timeout=30) as client:
            wait_healthy(server, client)
        for pair in (None, (stranger, stranger_key)):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{url}/health", verify=context(pair), timeout=10)


def wait_healthy(server: RunningServer, client: httpx.Client) -> None:
    for _ in range(3000):
        assert server.process.poll() is None, server.log_text()
        with contextlib.suppress(httpx.TransportError):
            if client.get("/health").status_code == 200:
                return
    raise AssertionError(server.log_text())


def test_certificates_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("server")
    _, other_key = authority.sign("other")
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    locked = authority.with_password(key)
    good = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    for wrong in (
        {"ssl_certfile": str(tmp_path / "none.pem")},
        {"ssl_certfile": str(broken)},
        {**good, "ssl_keyfile": str(other_key)},
        {**good, "ssl_keyfile": str(locked)},
    ):
        with pytest.raises(ConfigError, match="ssl_certfile"):
            tls_context(ServerConfig(**wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ssl_ca_certs"):
        tls_context(ServerConfig(**good, ssl_ca_certs=str(broken), ssl_cert_reqs=2))  # type: ignore[arg-type]
    assert tls_context(ServerConfig()) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_keyfile": "x"}, "ssl_keyfile needs ssl_certfile"),
        ({"ssl_cert_reqs": 2}, "ssl_cert_reqs needs ssl_certfile"),
        ({"ssl_certfile": "x", "ssl_cert_reqs": 2}, "ssl_cert_reqs needs ssl_ca_certs"),
        ({"ssl_certfile": "x", "ssl_cert_reqs": 3}, "ssl_cert_reqs must be one of 0, 1, 2"),
        ({"ssl_certfile": "x", "ssl_ca_certs": "x"}, "ssl_ca_certs needs ssl_cert_reqs"),
        ({"root_path": "llm"}, "root_path must begin with /"),
        ({"root_path": "/llm/"}, "root_path must begin with /"),
        ({"allow_credentials": True, "allowed_origins": ("*",)}, "allow_credentials needs"),
    ],
)
def test_settings_that_would_guard_nothing_are_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ServerConfig(**settings)  # type: ignore[arg-type]


def test_docs_can_be_taken_away(model_folder: Path) -> None:
    with running_server(
        tiny_config(model_folder), engine_module=MODULE, disable_docs=True
    ) as server:
        for path in ("/docs", "/redoc", "/openapi.json"):
            assert httpx.get(f"{server.url}{path}").status_code == 404
