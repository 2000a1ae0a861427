"""`octavo run-batch`, whole: a process of its own over a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from support.command import octavo
from support.text_model import write_text_model

CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "seed": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_text_model(folder)
    return folder


def request(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


REQUESTS: list[Any] = [
    request("chat", "/v1/chat/completions", **CHAT),
    request("text", "/v1/completions", prompt="a", max_tokens=3),
    request("vector", "/v1/embeddings", input="a"),
    request("response", "/v1/responses", input="a", max_output_tokens=3),
    "this is not JSON",
    request("refused", "/v1/completions", prompt="a", temperature=-1),
    request("chat", "/v1/completions", prompt="a"),
    request("stream", "/v1/completions", prompt="a", stream=True),
    request("where", "/v1/images", prompt="a"),
    {**request("how", "/v1/completions", prompt="a"), "method": "GET"},
    {"custom_id": "no-body", "method": "POST", "url": "/v1/completions"},
    {"method": "POST", "url": "/v1/completions", "body": {}},
    [],
]


def write(path: Path, requests: list[Any]) -> None:
    lines = [r if isinstance(r, str) else json.dumps(r) for r in requests]
    path.write_text("\n".join(lines) + "\n\n")


def run(model: Path, folder: Path, *options: str) -> Any:
    return octavo(
        "run-batch", "-i", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "--model", str(model),
        "--num-blocks-override", "64", *options,
    )  # fmt: skip


def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_every_line_has_its_answer_in_its_place(model: Path, tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", REQUESTS)
    result = run(model, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "4 answered, 1 refused, 8 not readable" in result.stderr
    lines = answers(tmp_path)
    assert [line["custom_id"] for line in lines] == [
        "chat", "text", "vector", "response", None, "refused", "chat", "stream", "where", "how", "no-body", None, None,
    ]  # fmt: skip
    assert len({line["id"] for line in lines}) == len(lines)
    kinds: tuple[type[BaseModel], ...] = (
        ChatCompletion, Completion, CreateEmbeddingResponse, Response,
    )  # fmt: skip
    for line, kind in zip(lines, kinds, strict=False):
        assert line["error"] is None and line["response"]["status_code"] == 200
        assert line["response"]["request_id"]
        kind.model_validate(line["response"]["body"])
    refused = lines[5]["response"]
    assert refused["status_code"] == 400 and refused["body"]["error"]["param"] == "temperature"
    params = [None, "custom_id", "body.stream", "url", "method", "body", "custom_id", None]
    errors = [line["error"] for line in lines if line["response"] is None]
    assert [error["param"] for error in errors] == params
    assert errors[0]["message"].startswith("line 5") and errors[1]["message"].startswith("line 7")


def test_a_batch_that_was_stopped_goes_on(model: Path, tmp_path: Path) -> None:
    requests = [
        request(f"r{i}", "/v1/completions", prompt=f"{i}", max_tokens=3, seed=i) for i in range(9)
    ]
    write(tmp_path / "in.jsonl", requests)
    assert run(model, tmp_path).returncode == 0
    whole = answers(tmp_path)
    out = tmp_path / "out.jsonl"
    kept = out.read_text().splitlines(keepends=True)[:4]
    out.write_text("".join(kept) + '{"id": "half a li')
    result = run(model, tmp_path, "--resume", "--max-concurrent", "2")
    assert result.returncode == 0, result.stderr
    assert "4 kept, 5 answered" in result.stderr
    again = answers(tmp_path)
    assert [line["id"] for line in again[:4]] == [line["id"] for line in whole[:4]]
    assert [line["response"]["body"]["choices"] for line in again] == [
        line["response"]["body"]["choices"] for line in whole
    ]
    write(tmp_path / "in.jsonl", requests[1:])
    other = run(model, tmp_path, "--resume")
    assert other.returncode == 2 and "does not answer the request in its place" in other.stderr


def test_files_that_cannot_be(model: Path, tmp_path: Path) -> None:
    assert "there is no file" in run(model, tmp_path).stderr
    (tmp_path / "in.jsonl").write_text("")
    same = octavo("run-batch", "-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "in.jsonl"))
    assert same.returncode == 2 and "cannot be the output file" in same.stderr
