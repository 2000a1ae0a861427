"""Clients that go away in the middle leave nothing behind."""

from collections.abc import Callable
from typing import Any, TypeAlias

import httpx

from support.answers import CHAT, COMPLETIONS, greedy_probe, script
from support.raw_stream import RawStream
from support.server_process import RunningServer

Open: TypeAlias = Callable[..., RawStream]

ENDLESS = {"prompt": script("\x04\x05abc "), "max_tokens": 3000}
ENDLESS_CHAT = {"messages": [{"role": "user", "content": script("\x04\x05abc ")}]}


def open_streams(server: RunningServer, open_stream: Open, count: int) -> list[RawStream]:
    """Streams of both endpoints that have begun; every fourth with two prompts and two choices."""
    streams = []
    for i in range(count):
        path = CHAT if i % 2 else COMPLETIONS
        body: dict[str, Any] = {**(ENDLESS_CHAT if i % 2 else ENDLESS), "stream": True}
        if i % 4 == 0:
            body |= {"prompt": [body["prompt"]] * 2, "n": 2, "seed": 1}
        streams.append(open_stream(server.url, path, body))
    for stream in streams:
        assert stream.read_headers() == 200
    return streams


def test_two_hundred_streams_vanish(
    scripted: RunningServer, scripted_http: httpx.Client, open_stream: Open
) -> None:
    before = scripted.metrics()
    streams = open_streams(scripted, open_stream, 200)
    busy = scripted.metrics()
    assert busy["octavo_kv_blocks_referenced"] > 0
    assert busy["vllm:num_requests_running"] + busy["vllm:num_requests_waiting"] >= 200
    for i, stream in enumerate(streams):
        stream.vanish(reset=i % 3 == 0)
    scripted.wait_idle()
    after = scripted.metrics()
    aborted = after["octavo_request_success_total"] - before["octavo_request_success_total"]
    assert aborted == 150 + 50 * 4
    assert scripted_http.get("/load").json() == {"server_load": 0}
    greedy_probe(scripted_http)


def test_clients_that_wait_for_a_whole_answer_vanish(
    scripted: RunningServer, scripted_http: httpx.Client, open_stream: Open
) -> None:
    waiting = [open_stream(scripted.url, COMPLETIONS, ENDLESS) for _ in range(50)]
    while scripted_http.get("/load").json()["server_load"] < 50:
        pass
    for i, stream in enumerate(waiting):
        stream.vanish(reset=bool(i % 2))
    scripted.wait_idle()
    assert scripted_http.get("/load").json() == {"server_load": 0}
    greedy_probe(scripted_http)


def test_clients_vanish_before_the_first_token(
    scripted: RunningServer, scripted_http: httpx.Client, open_stream: Open
) -> None:
    for i in range(50):
        stream = open_stream(scripted.url, CHAT, {**ENDLESS_CHAT, "stream": bool(i % 2)})
        stream.vanish(reset=bool(i % 3))
    scripted.wait_idle()
    greedy_probe(scripted_http)


def test_others_are_not_disturbed(
    scripted: RunningServer, scripted_http: httpx.Client, open_stream: Open
) -> None:
    text = "a text of some length " * 5
    stays = open_stream(
        scripted.url,
        COMPLETIONS,
        {"prompt": script("\x04" + text), "max_tokens": 200, "stream": True},
    )
    assert stays.read_headers() == 200
    for stream in open_streams(scripted, open_stream, 20):
        stream.vanish(reset=True)
    body = stays.read_rest()
    assert body.endswith("data: [DONE]\n\n")
    said = "".join(part.split('"', 1)[0] for part in body.split('"text":"')[1:])
    assert said == text
    assert scripted_http.get("/health").status_code == 200
