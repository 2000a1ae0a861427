"""KServe's protocol and Triton's model repository on a server of several models, with `tritonclient` as it comes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from octavo.evaluation.processes import descendants
from octavo.server.models.settings import LoadWhen, ModelSettings
from support.answers import script
from support.models_server import running_models
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, tiny_config

ANSWER = b"hello"


@pytest.fixture(scope="module")
def server(merged_model: Path) -> Iterator[RunningServer]:
    """The first model is there on command only, so that nothing may be asked of it by mistake."""
    engine = tiny_config(merged_model, num_blocks=1024)
    models = [
        ModelSettings("command", engine, load=LoadWhen.COMMAND),
        ModelSettings("start", engine, aliases=("alias",)),
        ModelSettings("demand", engine, load=LoadWhen.DEMAND),
        ModelSettings("broken", engine, load=LoadWhen.COMMAND, chat_template="{% nothing"),
    ]
    with running_models(models, engine_module=SCRIPTED) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[triton.InferenceServerClient]:
    made = triton.InferenceServerClient(server.url.removeprefix("http://"), network_timeout=60.0)
    yield made
    made.close()
    server.wait_idle()


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    server.wait_idle()


def states(client: triton.InferenceServerClient) -> dict[str, str]:
    return {model["name"]: model["state"] for model in client.get_model_repository_index()}


def infer(client: triton.InferenceServerClient, model: str) -> Any:
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([script("hello").encode()], dtype=np.object_))
    exclude = triton.InferInput("exclude_input_in_output", [1], "BOOL")
    exclude.set_data_from_numpy(np.array([True]))
    return client.infer(model, [text, exclude])


def test_the_server_is_ready_though_its_first_model_is_not_loaded(
    client: triton.InferenceServerClient, server: RunningServer
) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert "model_repository" in client.get_server_metadata()["extensions"]
    assert len(descendants(server.process.pid)) == 1


def test_load_infer_unload(client: triton.InferenceServerClient, server: RunningServer) -> None:
    assert states(client) == {
        "command": "UNAVAILABLE",
        "start": "READY",
        "alias": "READY",
        "demand": "READY",
        "broken": "UNAVAILABLE",
    }
    assert not client.is_model_ready("command")
    with pytest.raises(InferenceServerException, match="is not loaded"):
        infer(client, "command")
    client.load_model("command")
    assert client.is_model_ready("command") and states(client)["command"] == "READY"
    assert client.get_model_metadata("command")["name"] == "command"
    result = infer(client, "command")
    assert result.as_numpy("text_output").tolist() == [ANSWER]
    assert result.get_response()["model_name"] == "command"
    client.load_model("command")  # again: it stays
    (stats,) = client.get_inference_statistics("command")["model_stats"]
    assert stats["inference_count"] == 1
    engines = descendants(server.process.pid)
    client.unload_model("command")
    assert not client.is_model_ready("command") and states(client)["command"] == "UNAVAILABLE"
    assert len(descendants(server.process.pid)) == len(engines) - 1
    client.unload_model("command")  # again: nothing to do
    assert infer(client, "start").as_numpy("text_output").tolist() == [ANSWER]


def test_asking_about_a_sleeping_model_does_not_wake_it(
    client: triton.InferenceServerClient, server: RunningServer
) -> None:
    assert client.is_model_ready("demand") and client.is_model_ready("demand", "1")
    names = [entry["name"] for entry in client.get_inference_statistics()["model_stats"]]
    assert names == ["start"]
    assert len(descendants(server.process.pid)) == 1
    assert infer(client, "demand").as_numpy("text_output").tolist() == [ANSWER]
    assert len(descendants(server.process.pid)) == 2
    client.unload_model("demand")


def test_an_alias_is_the_model(client: triton.InferenceServerClient) -> None:
    result = infer(client, "alias")
    assert result.get_response()["model_name"] == "alias"


@pytest.mark.parametrize("stream", [False, True])
def test_generate_chooses_by_its_path(http: httpx.Client, stream: bool) -> None:
    body = {"text_input": script("hello"), "exclude_input_in_output": True, "stream": stream}
    path = "/v2/models/start/generate" + ("_stream" if stream else "")
    response = http.post(path, json=body)
    assert response.headers["x-octavo-model"] == "start"
    events = response.text.split("\n\n")[:-1] if stream else [f"data: {response.text}"]
    texts = [json.loads(event.removeprefix("data: "))["text_output"] for event in events]
    assert "".join(texts) == "hello"


def test_what_cannot_be_loaded_is_said(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="The model `broken` cannot be loaded: "):
        client.load_model("broken")
    entries = {model["name"]: model for model in client.get_model_repository_index()}
    assert entries["broken"]["state"] == "UNAVAILABLE" and entries["broken"]["reason"]
    with pytest.raises(InferenceServerException, match="`none` does not exist"):
        client.load_model("none")
    with pytest.raises(InferenceServerException, match="config is not supported"):
        client.load_model("start", config="{}")


def test_mistakes_have_kserves_shape(http: httpx.Client) -> None:
    for response, status in (
        (http.post("/v2/repository/models/none/unload"), 404),
        (http.post("/v2/repository/index", json={"ready": "yes"}), 400),
        (http.post("/v2/repository/models/start/unload", json={"parameters": [1]}), 400),
        (http.post("/v2/repository/models/start/unload", json={"parameters": {"x": 1}}), 400),
        (http.get("/v2/models/command/ready"), 503),
        (http.get("/v2/models/start/versions/2/ready"), 404),
        (http.get("/v2/models/none"), 404),
        (http.get("/v2/repository/index"), 405),
    ):
        assert (response.status_code, set(response.json())) == (status, {"error"})
    ready = http.post("/v2/repository/index", json={"ready": True}).json()
    names = {model["name"] for model in ready}
    assert {"start", "alias"} <= names and names.isdisjoint({"command", "broken"})


@pytest.mark.parametrize(
    "path",
    [
        "/health",
        "/ping",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/start/ready",
        "/v2/models/start/versions/1/ready",
    ],
)
def test_head_says_what_get_says_of_health(http: httpx.Client, path: str) -> None:
    assert (http.head(path).status_code, http.head(path).content) == (200, b"")
    assert http.get(path).status_code == 200
    assert http.head("/v2/models/command/ready").status_code == 503
