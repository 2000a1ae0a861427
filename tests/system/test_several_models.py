"""Two models in one server: each keeps to its memory, its queue and its engine; which one answers is said."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import openai
import pytest

from octavo.config import Backend
from octavo.evaluation.processes import descendants, process_use
from octavo.server.models.settings import LoadWhen, ModelSettings, ShortPrompts
from octavo.server.models.slot import MOST_RESTARTS
from support.answers import COMPLETIONS, script
from support.models_server import running_models
from support.raw_stream import RawStream
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, tiny_config
from support.slow_engine import MODULE as SLOW
from support.sse import assemble, parse_events

Open: TypeAlias = Callable[..., RawStream]
MIB = 1 << 20
ENDLESS = "a prompt that is not short: " + script("\x04\x05abc ")


def settings(folder: Path, name: str, **changes: Any) -> ModelSettings:
    """A tiny model with a queue of two requests and one sequence at a time."""
    engine = tiny_config(folder, num_blocks=512, max_num_seqs=1, max_num_queued_reqs=2)
    return ModelSettings(**{"name": name, "engine": engine, **changes})


@pytest.fixture(scope="module")
def server(merged_model: Path) -> Iterator[RunningServer]:
    """`large` hands short prompts to `small`, and everything when it is full."""
    models = [
        settings(
            merged_model,
            "large",
            aliases=("gpt-4o",),
            fallback="small",
            short_prompts=ShortPrompts("small", 20),
        ),
        settings(merged_model, "small"),
        settings(merged_model, "later", load=LoadWhen.COMMAND),
    ]
    with running_models(models, engine_module=SCRIPTED) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of the server, which must be idle afterwards."""
    with httpx.Client(base_url=server.url, timeout=90) as client:
        yield client
    server.wait_idle()


def ask(http: httpx.Client, model: str | None, prompt: str, **fields: Any) -> httpx.Response:
    body = {"prompt": prompt, "max_tokens": 4, **fields}
    return http.post(COMPLETIONS, json=body if model is None else {"model": model, **body})


def chosen(response: httpx.Response) -> tuple[str, str]:
    """Who answered, and why; the body says the same."""
    assert response.status_code == 200, response.text
    assert response.json()["model"] == response.headers["x-octavo-model"]
    return response.headers["x-octavo-model"], response.headers["x-octavo-model-choice"]


def wait_state(http: httpx.Client, name: str, state: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while http.get(f"/v1/models/{name}").json()["state"] != state:
        assert time.monotonic() < deadline, http.get(f"/v1/models/{name}").text
        time.sleep(0.02)


LONG = "a prompt that is long enough for the large model"


@pytest.mark.parametrize(
    ("model", "prompt", "expected"),
    [
        ("large", LONG, ("large", "name")),
        ("gpt-4o", LONG, ("large", "alias")),
        (None, LONG, ("large", "default")),
        ("gpt-4o", "short", ("small", "short prompt")),
        ("small", LONG, ("small", "name")),
    ],
)
def test_who_answers(
    http: httpx.Client, model: str | None, prompt: str, expected: tuple[str, str]
) -> None:
    before = http.get("/metrics").text
    assert chosen(ask(http, model, prompt)) == expected
    label = f'octavo_model_choices_total{{model_name="{expected[0]}",reason="{expected[1]}"}}'
    counts = [
        next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(label)), 0)
        for text in (before, http.get("/metrics").text)
    ]
    assert counts[1] == counts[0] + 1


def test_a_model_that_is_not_there(http: httpx.Client) -> None:
    response = ask(http, "huge", "x")
    assert response.status_code == 404
    assert "This server has: large, gpt-4o, small, later" in response.json()["error"]["message"]
    assert http.get("/v1/models/huge").status_code == 404
    assert http.post("/v1/models/load", json={"model": "huge"}).status_code == 404


def test_the_openai_client_chooses_by_model(server: RunningServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["large", "gpt-4o", "small", "later"]
        for name in ("small", "large"):
            messages: Any = [{"role": "user", "content": script(f"I am {name}")}]
            stream = client.chat.completions.create(
                model=name, messages=messages, max_tokens=30, stream=True
            )
            chunks = list(stream)
            assert {chunk.model for chunk in chunks} == {name}
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert text == f"I am {name}"


def test_metrics_are_labelled(http: httpx.Client) -> None:
    text = http.get("/metrics").text
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(set(series)) == len(series), "two models under one name"
    for name in ("large", "small"):
        assert f'vllm:num_requests_running{{engine="0",model_name="{name}"}} 0.0' in text
    assert text.count("# TYPE vllm:num_requests_running gauge") == 1
    assert 'octavo_model_state{model_name="later",state="unloaded"} 1.0' in text


def test_queues_do_not_meet(http: httpx.Client, server: RunningServer, open_stream: Open) -> None:
    """One model's queue is full: requests for it go to its fallback, those for the other are answered at once."""

    def endless(model: str) -> RawStream:
        body = {"model": model, "prompt": ENDLESS, "max_tokens": 3000, "stream": True}
        return open_stream(server.url, COMPLETIONS, body)

    running = endless("small")
    assert running.read_headers() == 200
    waiting = [endless("small") for _ in range(2)]
    deadline = time.monotonic() + 10
    while server.metrics()["vllm:num_requests_waiting"] < 2:
        assert time.monotonic() < deadline
    refused = ask(http, "small", LONG)
    assert (refused.status_code, refused.headers["x-octavo-model"]) == (429, "small")
    assert chosen(ask(http, "large", LONG)) == ("large", "name")
    for stream in (running, *waiting):
        stream.vanish(reset=True)
    server.wait_idle()
    streams = [endless("large")]
    assert streams[0].read_headers() == 200
    streams += [endless("large") for _ in range(2)]
    while server.metrics()["vllm:num_requests_waiting"] < 2:
        assert time.monotonic() < deadline
    assert chosen(ask(http, "gpt-4o", LONG)) == ("small", "fallback")
    for stream in streams:
        stream.vanish(reset=True)


def test_loading_and_unloading_by_command(
    http: httpx.Client, server: RunningServer, open_stream: Open
) -> None:
    refused = ask(http, "later", LONG)
    assert refused.status_code == 503
    assert "POST /v1/models/load" in refused.json()["error"]["message"]
    card = http.post("/v1/models/load", json={"model": "later"}).json()
    assert (card["state"], card["max_model_len"] > 0) == ("ready", True)
    assert chosen(ask(http, "later", LONG)) == ("later", "name")
    body = {"model": "later", "prompt": script("\x04" + LONG), "max_tokens": 500, "stream": True}
    stream = open_stream(server.url, COMPLETIONS, body)
    assert stream.read_headers() == 200
    done = http.post("/v1/models/unload", json={"model": "later"}).json()
    assert (done["state"], done["num_finished"], done["num_cancelled"]) == ("unloaded", 1, 0)
    assert assemble(parse_events(stream.read_rest())).texts == {0: LONG}


def test_unloading_cancels_what_it_is_told_to(
    http: httpx.Client, server: RunningServer, open_stream: Open
) -> None:
    http.post("/v1/models/load", json={"model": "later"}).raise_for_status()
    body = {"model": "later", "prompt": ENDLESS, "max_tokens": 3000, "stream": True}
    stream = open_stream(server.url, COMPLETIONS, body)
    assert stream.read_headers() == 200
    done = http.post("/v1/models/unload", json={"model": "later", "cancel": True}).json()
    assert (done["num_finished"], done["num_cancelled"]) == (0, 1)
    assert assemble(parse_events(stream.read_rest())).finish_reasons == {0: ["abort"]}
    again = http.post("/v1/models/unload", json={"model": "later"}).json()
    assert (again["state"], again["was_loaded"]) == ("unloaded", False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "model is required"),
        ({"model": "small", "timeout_s": -1}, "timeout_s must be from 0 to 3600; given: -1"),
        ({"model": "small", "timeout_s": 3, "cancel": True}, "exclude each other"),
        ({"model": "small", "force": True}, "unknown field 'force'"),
    ],
)
def test_a_mistake_with_unload(http: httpx.Client, body: dict[str, Any], message: str) -> None:
    response = http.post("/v1/models/unload", json=body)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert http.get("/v1/models/small").json()["state"] == "ready"


def test_an_engine_dies_and_the_others_go_on(merged_model: Path, open_stream: Open) -> None:
    models = [settings(merged_model, name) for name in ("first", "second")]
    with (
        running_models(models, engine_module=SCRIPTED) as server,
        httpx.Client(base_url=server.url, timeout=90) as http,
    ):
        engines = set(descendants(server.process.pid))

        def stream_of(model: str) -> RawStream:
            text = script("\x04" + 3 * LONG)
            body = {"model": model, "prompt": text, "max_tokens": 500, "stream": True}
            stream = open_stream(server.url, COMPLETIONS, body)
            assert stream.read_headers() == 200
            return stream

        streams = {name: stream_of(name) for name in ("first", "second")}
        os.kill(min(engines), signal.SIGKILL)
        texts = {name: stream.read_rest() for name, stream in streams.items()}
        (dead,) = (name for name, text in texts.items() if '"error"' in text)
        (other,) = set(texts) - {dead}
        assert assemble(parse_events(texts[other])).texts == {0: 3 * LONG}
        assert chosen(ask(http, dead, LONG)) == (dead, "name")  # waited for the new engine
        deaths = f'octavo_model_engine_deaths_total{{model_name="{dead}"}} 1.0'
        assert deaths in http.get("/metrics").text
        assert len(set(descendants(server.process.pid)) - engines) == 1
        for count in range(2, MOST_RESTARTS + 2):  # at last too often: it has failed, and says so
            assert ask(http, dead, script("\x03")).status_code == 503
            while (
                f'engine_deaths_total{{model_name="{dead}"}} {count}.0'
                not in http.get("/metrics").text
            ):
                time.sleep(0.02)
            wait_state(http, dead, "failed" if count > MOST_RESTARTS else "ready")
        refused = ask(http, dead, LONG)
        assert refused.status_code == 503
        assert f"The model `{dead}` has failed: " in refused.json()["error"]["message"]
        assert chosen(ask(http, other, LONG)) == (other, "name")
        assert http.get("/health").status_code == 200
        assert http.post("/v1/models/load", json={"model": dead}).json()["state"] == "ready"
        assert server.terminate() == 0


def test_a_sleeping_model_is_loaded_by_those_who_ask(merged_model: Path) -> None:
    lazy = settings(merged_model, "lazy", load=LoadWhen.DEMAND, idle_unload_s=1.0)
    with (
        running_models([lazy], engine_module=SLOW) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
        ThreadPoolExecutor(3) as pool,
    ):
        assert http.get("/health").status_code == 200
        assert descendants(server.process.pid) == []
        asked = [pool.submit(ask, http, "lazy", LONG) for _ in range(3)]
        wait_state(http, "lazy", "loading")
        answers = [waiting.result() for waiting in asked]
        # The queue holds two: the third is told so at once.
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429]
        wait_state(http, "lazy", "sleeping")
        assert descendants(server.process.pid) == []
        assert chosen(ask(http, "lazy", LONG)) == ("lazy", "name")


def test_unloading_returns_the_memory(tiny_model: Path) -> None:
    """Six loads leave the server's own process where one did, and nothing of the engine."""
    engine = replace(tiny_config(tiny_model, num_blocks=8192), backend=Backend.NATIVE)
    models = [ModelSettings("kept", engine), ModelSettings("other", engine)]
    with (
        running_models(models) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):

        def in_use() -> int:
            pids = (server.process.pid, *descendants(server.process.pid))
            return sum(process_use(pid).pss_bytes for pid in pids)

        def cycle() -> None:
            http.post("/v1/models/load", json={"model": "other"}).raise_for_status()
            assert chosen(ask(http, "other", LONG, ignore_eos=True)) == ("other", "name")
            http.post("/v1/models/unload", json={"model": "other"}).raise_for_status()

        cycle()
        front_end = process_use(server.process.pid).pss_bytes
        unloaded = in_use()
        http.post("/v1/models/load", json={"model": "other"}).raise_for_status()
        ask(http, "other", LONG)
        loaded = in_use()
        assert loaded - unloaded > 10 * MIB
        for _ in range(5):
            cycle()
        assert in_use() - unloaded < 8 * MIB
        assert process_use(server.process.pid).pss_bytes - front_end < 8 * MIB
        assert chosen(ask(http, "kept", LONG)) == ("kept", "name")
        assert server.metrics()["octavo_kv_blocks"] == 8192


def test_models_that_cannot_start_together(merged_model: Path) -> None:
    broken = settings(merged_model, "broken", engine=tiny_config(merged_model / "nowhere"))
    with running_models([settings(merged_model, "good"), broken], wait=False) as server:
        assert server.process.wait(timeout=90) == 2
        assert "nowhere" in server.log_text()
        assert "Traceback" not in server.log_text()
