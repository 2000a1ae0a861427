"""KServe's infer: tensors in JSON and in binary, and what is wrong with them."""

import json
import struct
from typing import Any

import httpx
import pytest

PROMPT = "<unk>hello<unk>"
MAX_LEN = 1024


def tensor(name: str, value: object, datatype: str = "BYTES") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [1], "data": [value]}


def flag(name: str) -> dict[str, Any]:
    return tensor(name, True, "BOOL")


EXCLUDE = flag("exclude_input_in_output")


def infer(http: httpx.Client, *inputs: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {"inputs": [tensor("text_input", PROMPT), *inputs], **fields}
    return http.post("/v2/models/tiny/infer", json=body)


def outputs(response: httpx.Response) -> dict[str, list[Any]]:
    assert response.status_code == 200, response.text
    return {output["name"]: output["data"] for output in response.json()["outputs"]}


def error_of(response: httpx.Response, status: int = 400) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    text: str = body["error"]
    return text


def test_the_answer_follows_the_prompt_unless_that_is_excluded(http: httpx.Client) -> None:
    response = infer(http, id="7")
    assert response.json() == {
        "model_name": "tiny",
        "model_version": "1",
        "id": "7",
        "outputs": [
            {
                "name": "text_output",
                "datatype": "BYTES",
                "shape": [1],
                "data": [PROMPT + "hello"],
            }
        ],
    }
    assert outputs(infer(http, EXCLUDE)) == {"text_output": ["hello"]}


def test_further_outputs_come_when_an_input_or_the_outputs_name_them(http: httpx.Client) -> None:
    names = (
        "finish_reason",
        "cumulative_logprob",
        "logprobs",
        "num_input_tokens",
        "num_output_tokens",
    )
    by_inputs = outputs(infer(http, EXCLUDE, *(flag(f"return_{name}") for name in names)))
    wanted = [{"name": name} for name in names]
    by_outputs = outputs(infer(http, EXCLUDE, outputs=wanted))
    assert by_inputs == {"text_output": ["hello"], **by_outputs}
    assert by_outputs["finish_reason"] == ["stop"]
    assert by_outputs["num_input_tokens"] == [8]
    assert by_outputs["num_output_tokens"] == [6]
    positions = json.loads(by_outputs["logprobs"][0])
    drawn = [next(iter(position.values())) for position in positions]
    assert [entry["decoded_token"] for entry in drawn] == [*"hello", "<eos>"]
    total = sum(entry["logprob"] for entry in drawn)
    assert by_outputs["cumulative_logprob"] == pytest.approx([total])


def test_only_named_outputs_come(http: httpx.Client) -> None:
    assert list(outputs(infer(http, outputs=[{"name": "text_output"}]))) == ["text_output"]
    found = outputs(infer(http, flag("return_finish_reason"), outputs=[{"name": "finish_reason"}]))
    assert list(found) == ["finish_reason"]


def test_parameters_decide_how_to_generate(http: httpx.Client) -> None:
    assert outputs(infer(http, EXCLUDE, parameters={"max_tokens": 2})) == {"text_output": ["he"]}
    assert outputs(infer(http, EXCLUDE, parameters={"max_tokens": "2"})) == {"text_output": ["he"]}
    sampling = tensor("sampling_parameters", '{"max_tokens": 3}')
    given = outputs(infer(http, EXCLUDE, sampling, parameters={"max_tokens": 1}))
    assert given == {"text_output": ["hel"]}
    several = outputs(infer(http, EXCLUDE, parameters={"n": 2, "temperature": 1.0}))
    assert several == {"text_output": ["hello", "hello"]}


def test_binary_inputs_and_outputs(http: httpx.Client) -> None:
    texts = [PROMPT.encode(), b'{"max_tokens": 4}']
    packed = [struct.pack("<I", len(text)) + text for text in texts]
    inputs = [
        {
            "name": name,
            "datatype": "BYTES",
            "shape": [1],
            "parameters": {"binary_data_size": len(data)},
        }
        for name, data in zip(("text_input", "sampling_parameters"), packed, strict=True)
    ]
    exclude = {
        "name": "exclude_input_in_output",
        "datatype": "BOOL",
        "shape": [1],
        "parameters": {"binary_data_size": 1},
    }
    body = {
        "inputs": [*inputs, exclude],
        "outputs": [
            {"name": "text_output", "parameters": {"binary_data": True}},
            {"name": "num_output_tokens", "parameters": {"binary_data": True}},
            {"name": "finish_reason"},
        ],
    }
    head = json.dumps(body).encode()
    response = http.post(
        "/v2/models/tiny/infer",
        content=head + b"".join(packed) + b"\x01",
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/octet-stream"
    size = int(response.headers["Inference-Header-Content-Length"])
    answer, binary = json.loads(response.content[:size]), response.content[size:]
    assert binary == struct.pack("<I", 4) + b"hell" + struct.pack("<I", 4)
    found = {output["name"]: output for output in answer["outputs"]}
    assert found["text_output"]["parameters"] == {"binary_data_size": 8}
    assert found["finish_reason"]["data"] == ["length"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"datatype": "INT32"}, "inputs stream: datatype must be BOOL; given: INT32"),
        ({"shape": [2]}, "inputs stream: shape must be [1]; given: [2]"),
        ({"shape": [1] * 9}, "inputs stream: shape must be [1]"),
        ({"data": ["x"]}, "inputs stream: data must be one element of type BOOL; given: x"),
        ({"data": []}, "inputs stream: data must be one element"),
        ({"data": [2]}, "inputs stream: data must be one element of type BOOL; given: 2"),
        ({"parameters": {"binary_data_size": 5}}, "must be an integer from 0 to 0"),
        ({"parameters": {"shared_memory_region": "x"}}, "shared memory is not available"),
        ({"name": "image"}, "inputs must have names among text_input, stream"),
        ({"name": "sampling_parameters"}, "datatype must be BYTES"),
    ],
)
def test_wrong_tensors_are_named(http: httpx.Client, broken: dict[str, Any], message: str) -> None:
    assert message in error_of(infer(http, {**flag("stream"), **broken}))


def test_wrong_requests_are_named(http: httpx.Client) -> None:
    assert "the input text_input is required" in error_of(
        http.post("/v2/models/tiny/infer", json={"inputs": [flag("stream")]})
    )
    assert "is there twice" in error_of(infer(http, tensor("text_input", "x")))
    assert "use generate_stream" in error_of(infer(http, flag("stream")))
    assert "outputs must have names among" in error_of(infer(http, outputs=[{"name": "x"}]))
    classes = [{"name": "text_output", "parameters": {"classification": 2}}]
    assert "classification is not available" in error_of(infer(http, outputs=classes))
    assert "inputs is required" in error_of(http.post("/v2/models/tiny/infer", json={}))
    headers = {"Inference-Header-Content-Length": "99"}
    too_short = http.post("/v2/models/tiny/infer", content=b"{}", headers=headers)
    assert "at most 2 bytes" in error_of(too_short)
    headers = {"Inference-Header-Content-Length": "x"}
    assert "number of bytes" in error_of(
        http.post("/v2/models/tiny/infer", content=b"{}", headers=headers)
    )
    compressed = http.post(
        "/v2/models/tiny/infer", content=b"{}", headers={"content-encoding": "gzip"}
    )
    assert "must not be compressed" in error_of(compressed, 415)
    form = http.post("/v2/models/tiny/infer", data={"x": "y"})
    assert "content type" in error_of(form, 415)


def test_bytes_that_no_input_takes(http: httpx.Client) -> None:
    head = json.dumps({"inputs": [tensor("text_input", "x")]}).encode()
    response = http.post(
        "/v2/models/tiny/infer",
        content=head + b"rest",
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert "has 4 bytes of binary data; the inputs name 0" in error_of(response)


@pytest.mark.parametrize("path", ["tiny/versions/1", "alias"])
def test_names_and_versions(http: httpx.Client, path: str) -> None:
    body = {"inputs": [tensor("text_input", PROMPT)]}
    assert http.post(f"/v2/models/{path}/infer", json=body).status_code == 200


def test_unknown_models_and_versions(http: httpx.Client) -> None:
    assert (
        error_of(http.get("/v2/models/none"), 404)
        == "Request for unknown model: 'none' is not found"
    )
    assert "version 2 is not found" in error_of(http.get("/v2/models/tiny/versions/2"), 404)
    assert "Not Found" in error_of(http.get("/v2/nothing"), 404)
