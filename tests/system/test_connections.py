"""Connections as the worst clients use them: requests that never come, are not HTTP, or come all at once."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from support.answers import COMPLETIONS, complete, script
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config

TIMEOUT_S = 1.0
"""What the server gives its clients."""
PATIENCE_S = 6.0
HEADERS = "Host: test\r\nContent-Type: application/json\r\n"
CHUNKED = f"POST {COMPLETIONS} HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"


@pytest.fixture(scope="module")
def server(merged_model: Path) -> Iterator[RunningServer]:
    """A server that waits one second for a client; its process began with room for 200 files."""
    config = tiny_config(merged_model, num_blocks=16384)
    with running_server(
        config,
        engine_module=SCRIPTED,
        slow_client_timeout_s=TIMEOUT_S,
        limits={resource.RLIMIT_NOFILE: 200},
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def still_serves(server: RunningServer) -> Iterator[None]:
    """Whatever a test does, the server answers afterwards, holds nothing, and has not been surprised."""
    yield
    server.wait_idle()
    with httpx.Client(base_url=server.url, timeout=10) as http:
        assert complete(http, script("still here")).text == "still here"
    assert "Traceback" not in server.log_text()


@contextlib.contextmanager
def connection(server: RunningServer) -> Iterator[socket.socket]:
    address = urlsplit(server.url)
    place = (address.hostname, address.port or 0)
    with socket.create_connection(place, timeout=PATIENCE_S) as client:
        yield client


def read_all(client: socket.socket) -> str:
    """Everything until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(65536):
            received += data
    return received.decode()


def read_answer(client: socket.socket) -> str:
    """One answer that tells its length."""
    received = b""
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if end and length and len(body) >= int(length[1]):
            return received.decode()
        data = client.recv(65536)
        assert data, f"the connection has ended: {received!r}"
        received += data


def post(body: dict[str, Any] | str, *, headers: str = "", path: str = COMPLETIONS) -> bytes:
    text = body if isinstance(body, str) else json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\n{HEADERS}{headers}Content-Length: {len(text)}\r\n\r\n"
    return (head + text).encode()


def errors_in(received: str) -> list[tuple[int, str]]:
    """Status and error type of each response that is an error of the usual shape."""
    found = re.findall(r"HTTP/1.1 (\d+) [^\r]*\r\n(?:[^\r]+\r\n)*\r\n({\"error\".*?}})", received)
    return [(int(status), json.loads(body)["error"]["type"]) for status, body in found]


TIMED_OUT = [(408, "RequestTimeoutError")]
SLOW = {
    "nothing": ("", "", []),
    "line ends only": ("", "\r\n", []),
    "half a line": ("POST /v1", "", TIMED_OUT),
    "headers in drops": ("GET /health HTTP/1.1\r\n", "X: a\r\n", TIMED_OUT),
    "no body": (
        f"POST {COMPLETIONS} HTTP/1.1\r\n{HEADERS}Content-Length: 100\r\n\r\n",
        "",
        TIMED_OUT,
    ),
    "a body in drops": (
        f"POST {COMPLETIONS} HTTP/1.1\r\n{HEADERS}Content-Length: 100000\r\n\r\n",
        "a" * 100,
        TIMED_OUT,
    ),
    "a body without end": (CHUNKED, "1\r\na\r\n", TIMED_OUT),
    "a body that nobody asked for": (
        CHUNKED.replace(COMPLETIONS, "/nowhere"),
        "1\r\na\r\n",
        [(404, "NotFoundError")],
    ),
    "nothing more after an answer": (
        "GET /v1/models/x HTTP/1.1\r\n\r\n",
        "\r\n",
        [(404, "NotFoundError")],
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_request_that_does_not_come_is_not_waited_for(server: RunningServer, name: str) -> None:
    first, drops, expected = SLOW[name]
    before = server.metrics()["octavo_slow_clients_total"]
    started = time.monotonic()
    received = b""
    with connection(server) as client:
        client.sendall(first.encode())
        client.settimeout(0.1)
        while True:
            assert time.monotonic() - started < PATIENCE_S, "the server waits for ever"
            try:
                data = client.recv(65536)
                received += data
                if not data:
                    break
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    client.sendall(drops.encode())
            except ConnectionResetError:
                break
    assert errors_in(received.decode()) == expected
    cut = server.metrics()["octavo_slow_clients_total"] - before
    assert cut == (1 if expected == TIMED_OUT or "nobody" in name else 0)


def test_what_came_while_the_server_stood_still_is_answered(server: RunningServer) -> None:
    """A paused container: the first thing that it sees afterwards is that all its timers are over."""
    with connection(server) as client:
        client.sendall(post({"prompt": script("before")}))
        assert '"text":"before"' in read_answer(client)
        os.kill(server.process.pid, signal.SIGSTOP)
        client.sendall(post({"prompt": script("after")}))
        time.sleep(2 * TIMEOUT_S)
        os.kill(server.process.pid, signal.SIGCONT)
        assert '"text":"after"' in read_answer(client)


def test_a_steady_upload_may_take_longer(server: RunningServer) -> None:
    body = json.dumps({"prompt": script("steady"), "metadata": "x" * 150_000})
    request = post(body)
    with connection(server) as client:
        for start in range(0, len(request), 20_000):
            client.sendall(request[start : start + 20_000])
            time.sleep(0.3)
        assert '"text":"steady"' in read_answer(client)


def test_a_request_may_wait_half_sent_behind_an_answer(server: RunningServer) -> None:
    text = "a text that takes two seconds " * 7
    body = {"prompt": script("\x04" + text), "max_tokens": 400, "stream": True}
    with connection(server) as client:
        client.sendall(post(body) + b"POST /v1/comp")
        received = read_all(client)
    stream, _, rest = received.partition("data: [DONE]\n\n")
    assert "".join(re.findall(r'"text":"([^"]*)"', stream)) == text
    assert errors_in(rest) == TIMED_OUT


@pytest.mark.parametrize("data", ["a" * 1_000_000, "a: b\r\n" * 100_000])
def test_headers_without_end(server: RunningServer, data: str) -> None:
    with connection(server) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET /health HTTP/1.1\r\nX: " + data.encode())
            for _ in range(100):
                client.sendall(data.encode())
            raise AssertionError("the server takes any number of headers")
        # The reset may overtake the answer.
        assert errors_in(read_all(client)) in ([(431, "RequestHeadersTooLargeError")], [])


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"FOO /health HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: a\0b\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        f"POST {COMPLETIONS} HTTP/1.1\r\n{HEADERS}Content-Length: -5\r\n\r\n".encode(),
        f"POST {COMPLETIONS} HTTP/1.1\r\n{HEADERS}Content-Length: {10**30}\r\n\r\n".encode(),
        CHUNKED.encode() + b"ZZ\r\n\r\n",
        CHUNKED.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n").encode(),
    ],
)
def test_what_is_not_http(server: RunningServer, request_bytes: bytes) -> None:
    with connection(server) as client:
        client.sendall(request_bytes)
        assert errors_in(read_all(client)) == [(400, "BadRequestError")]


@pytest.mark.parametrize("packets", [1, 2])
def test_an_offer_of_http_2_is_declined_and_the_body_is_read(
    server: RunningServer, packets: int
) -> None:
    """Java's client offers it with every request."""
    request = post({"prompt": script("hello")}, headers=UPGRADE)
    head = request.index(b"\r\n\r\n") + 4
    with connection(server) as client:
        for _ in range(2):  # the connection goes on
            for part in (request,) if packets == 1 else (request[:head], request[head:]):
                client.sendall(part)
                time.sleep(0.1)
            answer = read_answer(client)
            assert answer.startswith("HTTP/1.1 200")
            assert '"text":"hello"' in answer


def test_a_websocket_is_declined(server: RunningServer) -> None:
    with connection(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert read_answer(client).startswith("HTTP/1.1 200")


def test_garbage_behind_a_request_does_not_look_like_its_answer(server: RunningServer) -> None:
    body = {"prompt": script("\x04\x05abc "), "max_tokens": 3000, "stream": True}
    with connection(server) as client:
        client.sendall(post(body))
        received = client.recv(4096).decode()
        client.sendall(b"this is not HTTP\r\n\r\n")
        received += read_all(client)
    assert received.count("HTTP/1.1") == 1
    assert '"error"' not in received


def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    bodies = [{"prompt": script(f"\x04answer {i}"), "stream": bool(i % 2)} for i in range(5)]
    with connection(server) as client:
        last = b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n"
        client.sendall(b"".join(map(post, bodies)) + last)
        received = read_all(client)
    assert received.count("HTTP/1.1 200") == 6
    texts = "".join(re.findall(r'"text":"([^"]*)"', received))
    assert texts == "".join(f"answer {i}" for i in range(5))
    assert received.rstrip().endswith("}")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_with_pipelined_requests_vanishes(server: RunningServer, stream: bool) -> None:
    body = {"prompt": script("\x04\x05abc "), "max_tokens": 3000, "stream": stream}
    with connection(server) as client:
        client.sendall(post(body) * 3)
        deadline = time.monotonic() + PATIENCE_S
        while not server.metrics()["vllm:num_requests_running"]:
            assert time.monotonic() < deadline
    server.wait_idle(5)


def test_more_connections_than_the_process_began_with(server: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connection(server)) for _ in range(500)]
        with httpx.Client(base_url=server.url, timeout=5) as http:
            assert complete(http, script("among many")).text == "among many"
        for client in clients:
            assert client.recv(1) == b""  # closed: nothing was asked


@pytest.mark.parametrize(
    "accept", ["\xff;q=a", "application/openmetrics-text;version=\xff", "*/*" * 1000]
)
def test_metrics_for_any_scraper(server: RunningServer, accept: str) -> None:
    with connection(server) as client:
        request = f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        client.sendall(request.encode("latin-1"))
        received = read_all(client)
    assert received.startswith("HTTP/1.1 200")
    assert "octavo_kv_blocks" in received
