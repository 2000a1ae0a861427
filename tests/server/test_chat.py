"""POST /v1/chat/completions, whole and streamed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.scripted_engine import MODULE
from support.server_process import RunningServer, running_server, tiny_config
from support.sse import Stream, read_stream

URL = "/v1/chat/completions"


TOOLS = [{"type": "function", "function": {"name": "f"}}]


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def script(text: str) -> list[dict[str, Any]]:
    return user(f"<unk>{text}<unk>")


def calling(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}


def whole(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post(URL, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def streamed(http: httpx.Client, **body: Any) -> Stream:
    return read_stream(http.post(URL, json={**body, "stream": True}))


def refused(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post(URL, json=body)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def prompt_of(http: httpx.Client, **body: Any) -> str:
    """The prompt as the engine gets it."""
    answer = whole(http, **body, max_tokens=1, return_token_ids=True)
    ids = answer["prompt_token_ids"]
    text: str = http.post("/detokenize", json={"tokens": ids}).json()["prompt"]
    return text


def test_the_shape_of_an_answer(http: httpx.Client) -> None:
    answer = whole(http, messages=script("Hello"))
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "tool_calls": []},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert answer["usage"]["completion_tokens"] == 6


def test_the_shape_of_a_stream(http: httpx.Client) -> None:
    stream = streamed(http, messages=script("Hello"), stream_options={"include_usage": True})
    first, *rest = stream.chunks
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert stream.texts == {0: "Hello"}
    assert stream.finish_reasons == {0: ["stop"]}
    assert rest[-1]["choices"] == [] and rest[-1]["usage"]["completion_tokens"] == 6
    assert all("role" not in c["delta"] for chunk in rest for c in chunk["choices"])
    assert {chunk["id"] for chunk in stream.chunks} == {first["id"]}


def test_a_slow_stream_comes_in_parts(http: httpx.Client) -> None:
    stream = streamed(http, messages=script("\x04abcdef"))
    assert stream.texts == {0: "abcdef"}
    parts = [choice["delta"]["content"] for choice in stream.choices()]
    assert len(parts) >= 6
    assert all(
        set(choice) >= {"index", "delta", "logprobs", "finish_reason"}
        for choice in stream.choices()
    )


def test_to_the_end_of_the_context_by_default(http: httpx.Client) -> None:
    answer = whole(http, messages=script("\x05abc"))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 1024


def test_n_choices_interleaved(http: httpx.Client) -> None:
    body: dict[str, Any] = {"messages": user("x"), "n": 3, "seed": 3, "max_tokens": 30}
    answer = whole(http, **body)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    stream = streamed(http, **body)
    assert [stream.texts[i] for i in range(3)] == texts
    assert [c["index"] for chunk in stream.chunks[:3] for c in chunk["choices"]] == [0, 1, 2]
    assert all(stream.choices(i)[0]["delta"]["role"] == "assistant" for i in range(3))


def test_logprobs(http: httpx.Client) -> None:
    body: dict[str, Any] = {"messages": script("é!"), "logprobs": True, "top_logprobs": 1}
    content = whole(http, **body)["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [[0xC3], [0xA9], [0x21], list(b"<eos>")]
    assert content[2]["token"] == "!"
    assert content[2]["top_logprobs"] == [
        {name: content[2][name] for name in ("token", "logprob", "bytes")}
    ]
    stream = streamed(http, **body)
    joined = [
        entry
        for choice in stream.choices()
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert joined == content
    plain = whole(http, messages=script("a"), logprobs=True)["choices"][0]["logprobs"]
    assert [entry["top_logprobs"] for entry in plain["content"]] == [[], []]


def test_token_ids_and_prompt_logprobs(http: httpx.Client) -> None:
    answer = whole(http, messages=script("a"), return_token_ids=True, prompt_logprobs=0)
    assert answer["choices"][0]["token_ids"] == [68, 2]
    assert len(answer["prompt_logprobs"]) == len(answer["prompt_token_ids"])
    assert answer["prompt_logprobs"][0] is None
    stream = streamed(http, messages=script("a"), return_token_ids=True)
    assert stream.chunks[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    assert [i for c in stream.choices() for i in c.get("token_ids", [])] == [68, 2]


def test_usage_in_every_chunk(http: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = streamed(http, messages=script("\x04abc"), stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in stream.chunks]
    assert counts[0] == 0 and counts[-1] == 4
    assert counts == sorted(counts)


def test_roles_and_parts_reach_the_template(http: httpx.Client) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "{}"}}]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ]
    assert prompt_of(http, messages=messages) == (
        "<bos><|turn|>system:be brief\n<|turn|>user:one\ntwo\n"
        "<|turn|>assistant:\n<|turn|>tool:4\n<|turn|>assistant:"
    )


def test_bos_stands_once(http: httpx.Client) -> None:
    assert prompt_of(http, messages=user("x"), add_special_tokens=True).count("<bos>") == 1


def test_a_final_message_can_be_continued(http: httpx.Client) -> None:
    messages = [*user("<unk>, two<unk>"), {"role": "assistant", "content": "one"}]
    body: dict[str, Any] = {"messages": messages, "continue_final_message": True}
    assert prompt_of(http, **body).endswith("<|turn|>assistant:one")
    assert whole(http, **body)["choices"][0]["message"]["content"] == ", two"
    echoed = whole(http, **body, echo=True)["choices"][0]["message"]["content"]
    assert echoed == "one, two"
    assert streamed(http, **body, echo=True).texts == {0: "one, two"}
    without = prompt_of(http, messages=messages, add_generation_prompt=False)
    assert without.endswith("<|turn|>assistant:one\n")


def test_tools_that_may_not_be_called_are_fine(http: httpx.Client) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body: dict[str, Any] = {"messages": script("ok"), "tools": tools}
    answer = whole(http, **body, tool_choice="none", parallel_tool_calls=True)
    assert answer["choices"][0]["message"]["content"] == "ok"
    assert whole(http, messages=script("ok"), tools=[], tool_choice="none")["choices"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        ({"tools": TOOLS, "tool_choice": {"type": "custom"}}, "tool_choice"),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": TOOLS, "use_beam_search": True, "n": 2}, "use_beam_search"),
        ({"tools": TOOLS, "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "x"}},
                }
            },
            "response_format",
        ),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs"),
        (
            {"structured_outputs": {"regex": "a"}, "use_beam_search": True, "n": 2},
            "structured_outputs",
        ),
        ({"guided_json": {"items": {"not": {}}}}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages"),
        ({"messages": [{"role": 5, "content": "x"}]}, "messages"),
        ({"messages": [calling("{")]}, "messages"),
        ({"messages": [calling("[" * 100_000)]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages",
        ),
    ],
)
def test_what_is_refused_by_name(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        error = refused(http, **{"messages": user("x"), "stream": stream, **fields})
        assert (error["param"] or "").partition(".")[0] == param
        assert error["type"] == "BadRequestError"


def test_an_error_in_the_middle_of_a_stream(http: httpx.Client) -> None:
    stream = streamed(http, messages=script("\x01\x04abc"))
    assert stream.texts == {0: "abc"}
    assert stream.finish_reasons == {}
    assert [error["code"] for error in stream.errors] == [500]
    assert stream.chunks[-1] == {"error": stream.errors[0]}


@pytest.fixture(scope="module")
def other_server(model_folder: Path) -> Iterator[RunningServer]:
    """A server with other settings."""
    with running_server(
        tiny_config(model_folder, policy="priority"),
        engine_module=MODULE,
        trust_request_chat_template=True,
        strict_requests=True,
        log_requests=True,
        chat_template="{% for m in messages %}[{{ m.content }}]{% endfor %}{{ mood }}",
    ) as server:
        yield server


@pytest.fixture
def open_minded(other_server: RunningServer) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=other_server.url, timeout=30) as client:
        yield client


def test_requests_can_be_logged_without_their_text(
    other_server: RunningServer, open_minded: httpx.Client
) -> None:
    whole(open_minded, messages=user("a secret"), max_tokens=1)
    line = r"ChatRequest [0-9a-f]{32}: 1 prompts, 10 prompt tokens, n 1, \d+\.\d{3} s, done"
    assert re.search(line, other_server.log_text())
    assert "secret" not in other_server.log_text()


def test_a_template_from_the_command_line(open_minded: httpx.Client) -> None:
    kwargs = {"mood": "glad"}
    assert prompt_of(open_minded, messages=user("x"), chat_template_kwargs=kwargs) == "[x]glad"


def test_a_trusted_template_from_a_request(open_minded: httpx.Client) -> None:
    body = {"messages": user("x"), "chat_template": "{{ messages[0].content }}!"}
    assert prompt_of(open_minded, **body) == "x!"
    effort = {**body, "chat_template": "{{ reasoning_effort }}", "reasoning_effort": "low"}
    assert prompt_of(open_minded, **effort) == "low"
    for broken in ("{% if %}", "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ 1/0 }}"):
        error = refused(open_minded, messages=user("x"), chat_template=broken)
        assert error["code"] == 400


def test_strict_requests(open_minded: httpx.Client) -> None:
    assert refused(open_minded, messages=user("x"), colour=1)["param"] == "colour"
    messages = [{"role": "user", "content": "x", "id": 1}]
    assert refused(open_minded, messages=messages)["param"] == "messages.id"
    assert whole(open_minded, messages=user("x"), user="me", max_tokens=1)


def test_priorities_where_they_are_on(open_minded: httpx.Client) -> None:
    assert whole(open_minded, messages=user("x"), priority=-3, max_tokens=1)
