"""`tritonclient` over HTTP, as it comes."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from support.server_process import RunningServer

PROMPT = "<unk>hello world<unk>"
ANSWER = b"hello world"


@pytest.fixture
def client(scripted: RunningServer) -> Iterator[triton.InferenceServerClient]:
    made = triton.InferenceServerClient(scripted.url.removeprefix("http://"))
    yield made
    made.close()
    scripted.wait_idle()


def text(name: str, value: str, *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([value.encode()], dtype=np.object_), binary_data=binary)
    return tensor


def switch(name: str, *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput(name, [1], "BOOL")
    tensor.set_data_from_numpy(np.array([True]), binary_data=binary)
    return tensor


def test_server_and_model(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "octavo"
    metadata = client.get_model_metadata("tiny")
    assert metadata["inputs"][0]["name"] == "text_input"
    assert client.get_model_config("tiny")["max_batch_size"] == 0
    with pytest.raises(InferenceServerException, match="unknown model: 'other'"):
        client.get_model_metadata("other")


@pytest.mark.parametrize("binary", [True, False])
def test_infer(client: triton.InferenceServerClient, binary: bool) -> None:
    inputs = [
        text("text_input", PROMPT, binary=binary),
        text("sampling_parameters", json.dumps({"max_tokens": 5}), binary=binary),
        switch("exclude_input_in_output", binary=binary),
        switch("return_num_output_tokens", binary=binary),
        switch("return_cumulative_logprob", binary=binary),
    ]
    result = client.infer("tiny", inputs, request_id="7")
    assert result.as_numpy("text_output").tolist() == [b"hello"]
    assert result.as_numpy("num_output_tokens").tolist() == [5]
    assert result.as_numpy("cumulative_logprob").dtype == np.float32
    assert result.get_response()["id"] == "7"


@pytest.mark.parametrize("binary", [True, False])
def test_requested_outputs(client: triton.InferenceServerClient, binary: bool) -> None:
    outputs = [
        triton.InferRequestedOutput(name, binary_data=binary)
        for name in ("text_output", "finish_reason")
    ]
    result = client.infer("tiny", [text("text_input", PROMPT)], outputs=outputs)
    (answer,) = result.as_numpy("text_output").tolist()
    (reason,) = result.as_numpy("finish_reason").tolist()
    if not binary:  # what came in JSON is text
        answer, reason = answer.encode(), reason.encode()
    assert (answer, reason) == (PROMPT.encode() + ANSWER, b"stop")
    assert result.as_numpy("num_input_tokens") is None


def test_parameters_of_the_request(client: triton.InferenceServerClient) -> None:
    inputs = [text("text_input", PROMPT), switch("exclude_input_in_output")]
    result = client.infer("tiny", inputs, parameters={"max_tokens": 2, "temperature": 0.0})
    assert result.as_numpy("text_output").tolist() == [b"he"]
    with pytest.raises(InferenceServerException, match="temperature must be"):
        client.infer("tiny", inputs, parameters={"temperature": -1.0})
    with pytest.raises(InferenceServerException, match="sequence_id is not supported"):
        client.infer("tiny", inputs, sequence_id=5, sequence_start=True)
    with pytest.raises(InferenceServerException, match="--scheduling-policy priority"):
        client.infer("tiny", inputs, priority=1)


def test_several_at_once(scripted: RunningServer) -> None:
    address = scripted.url.removeprefix("http://")
    with triton.InferenceServerClient(address, concurrency=8) as client:
        words = [f"word{i}" for i in range(16)]
        waiting = [
            client.async_infer(
                "tiny",
                [text("text_input", f"<unk>{word}<unk>"), switch("exclude_input_in_output")],
                parameters={"max_tokens": 20},
            )
            for word in words
        ]
        found = [one.get_result().as_numpy("text_output")[0].decode() for one in waiting]
    assert found == words
    scripted.wait_idle()


def test_repository_and_statistics(client: triton.InferenceServerClient) -> None:
    assert [model["state"] for model in client.get_model_repository_index()] == ["READY"]
    client.load_model("tiny")
    with pytest.raises(InferenceServerException, match="the only model"):
        client.unload_model("tiny")

    def count() -> int:
        (stats,) = client.get_inference_statistics("tiny")["model_stats"]
        found: int = stats["inference_count"]
        return found

    before = count()
    client.infer("tiny", [text("text_input", PROMPT)])
    assert count() == before + 1
