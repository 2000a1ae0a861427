"""Stored responses where several processes or several models answer: what one has made, the others go on from."""

import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.evaluation.processes import descendants
from octavo.server.models.settings import LoadWhen, ModelSettings
from support.answers import script
from support.models_server import running_models
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config

COUNT = 3
MANY = 24
RESPONSES, LAST = "/v1/responses", "response.completed"


@pytest.fixture(scope="module")
def server(merged_model: Path) -> Iterator[RunningServer]:
    """Several front ends over one engine."""
    config = tiny_config(merged_model, num_blocks=16384, max_num_seqs=64)
    with running_server(config, engine_module=SCRIPTED, api_server_count=COUNT) as running:
        until(lambda: "ready at" in running.log_text())
        yield running


def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come true"
        time.sleep(0.02)


def make(server: RunningServer, said: str, **fields: Any) -> dict[str, Any]:
    """A response, over a connection of its own: the kernel chooses the front end anew."""
    body = {"input": script(said), "max_output_tokens": 40, **fields}
    response = httpx.post(server.url + RESPONSES, json=body, timeout=30)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json()
    return made


def status(server: RunningServer, response_id: str) -> int:
    return httpx.get(f"{server.url}{RESPONSES}/{response_id}", timeout=30).status_code


def text_of(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


def test_every_front_end_knows_what_any_has_made(server: RunningServer) -> None:
    with ThreadPoolExecutor(8) as pool:
        texts = [f"number {i}" for i in range(MANY)]
        made = list(pool.map(lambda text: make(server, text), texts))
        assert [text_of(response) for response in made] == texts
        paths = [f"{server.url}{RESPONSES}/{response['id']}" for response in made]
        assert list(pool.map(lambda path: httpx.get(path, timeout=30).json(), paths)) == made
        followed = list(
            pool.map(lambda one: make(server, "on", previous_response_id=one["id"]), made)
        )
        for one, two in zip(made, followed, strict=True):
            assert text_of(two).startswith(text_of(one))  # its script is still in the prompt
            assert two["usage"]["input_tokens"] > 1.5 * one["usage"]["input_tokens"]
            items = httpx.get(f"{server.url}{RESPONSES}/{two['id']}/input_items", timeout=30).json()
            assert items["data"][0]["content"][0]["text"] == script("on")
        gone = list(pool.map(lambda path: httpx.delete(path, timeout=30).status_code, paths))
        assert gone == [200] * MANY
        assert [status(server, one["id"]) for one in made] == [404] * MANY
    server.wait_idle()


def test_who_has_read_the_end_of_a_stream_finds_the_response(server: RunningServer) -> None:
    for i in range(12):
        body = {"input": script(f"{i}"), "max_output_tokens": 40, "stream": True}
        with httpx.stream("POST", server.url + RESPONSES, json=body, timeout=30) as response:
            data = (line[6:] for line in response.iter_lines() if line.startswith("data: "))
            last = next(event for event in map(json.loads, data) if event["type"] == LAST)
            assert status(server, last["response"]["id"]) == 200  # the stream is still open


def test_responses_outlive_the_front_end_that_made_them(server: RunningServer) -> None:
    made = [make(server, f"answer {i}") for i in range(MANY)]

    def front_ends() -> list[int]:
        found = []
        for pid in descendants(server.process.pid):
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and b"frontends" in command.read_bytes():
                found.append(pid)
        return found

    def is_replaced(pid: int) -> bool:
        return pid not in front_ends() and len(front_ends()) == COUNT

    for pid in front_ends():  # one after the other, so that no one is left who was there before
        os.kill(pid, signal.SIGKILL)
        until(functools.partial(is_replaced, pid))
    for one in made:
        assert httpx.get(f"{server.url}{RESPONSES}/{one['id']}", timeout=30).json() == one
        assert text_of(make(server, "more", previous_response_id=one["id"])) != "more"
    server.wait_idle()


def test_a_conversation_goes_on_with_another_model(merged_model: Path) -> None:
    engine = tiny_config(merged_model, num_blocks=2048)
    models = [
        ModelSettings("first", engine, load=LoadWhen.COMMAND),  # it is asked for nothing
        ModelSettings("second", engine),
        ModelSettings("third", engine),
    ]
    with (
        running_models(models, engine_module=SCRIPTED) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        one = client.responses.create(model="second", input=script("one"))
        two = client.responses.create(
            model="third", input=script("two"), previous_response_id=one.id
        )
        assert one.output_text == "one" and two.model == "third"
        assert two.output_text.startswith(
            "one\nassistant:one"
        )  # the script of the first is in the prompt
        httpx.post(f"{server.url}/v1/models/unload", json={"model": "second"}).raise_for_status()
        assert client.responses.retrieve(one.id).output_text == "one"
        assert len(client.responses.input_items.list(two.id).data) == 1
        client.responses.delete(one.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(one.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="third", input="x", previous_response_id=one.id)
