"""Anthropic's Messages API over HTTP; every answer and event has the types of the `anthropic` package."""

from typing import Any

import httpx
import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent

from support.named_events import read_named_events
from support.typed import strictly

SAY = "<unk>{}<unk>"


def body(text: str = SAY.format("hello"), **fields: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": text}],
        **fields,
    }


def ask(http: httpx.Client, fields: dict[str, Any]) -> Message:
    response = http.post("/v1/messages", json=fields)
    assert response.status_code == 200, response.text
    return strictly(Message, response.json())


def stream(http: httpx.Client, fields: dict[str, Any]) -> list[Any]:
    response = http.post("/v1/messages", json={**fields, "stream": True})
    return [strictly(RawMessageStreamEvent, event) for event in read_named_events(response)]  # type: ignore[arg-type]


def text_of(message: Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


def refusal(http: httpx.Client, fields: dict[str, Any], status: int = 400) -> dict[str, str]:
    response = http.post("/v1/messages", json=fields)
    assert response.status_code == status, response.text
    answer = response.json()
    assert answer["type"] == "error" and set(answer) == {"type", "error"}
    error: dict[str, str] = answer["error"]
    return error


def test_a_message(http: httpx.Client) -> None:
    message = ask(http, body())
    assert text_of(message) == "hello"
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.id.startswith("msg-") and message.model == "tiny"
    assert message.usage.output_tokens == 6  # five letters and the end
    assert message.usage.input_tokens > 0


@pytest.mark.parametrize(
    ("fields", "reason", "sequence", "text"),
    [
        ({}, "end_turn", None, "hello world"),
        ({"max_tokens": 3}, "max_tokens", None, "hel"),
        ({"stop_sequences": ["nope", "o w"]}, "stop_sequence", "o w", "hell"),
    ],
)
def test_streamed_equals_whole(
    http: httpx.Client, fields: dict[str, Any], reason: str, sequence: str | None, text: str
) -> None:
    fields = body(SAY.format("hello world"), **fields)
    whole = ask(http, fields)
    assert (whole.stop_reason, whole.stop_sequence, text_of(whole)) == (reason, sequence, text)
    events = stream(http, fields)
    kinds = [event.type for event in events]
    deltas = [event for event in events if event.type == "content_block_delta"]
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * len(deltas),
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert "".join(event.delta.text for event in deltas) == text
    end = events[-2]
    assert (end.delta.stop_reason, end.delta.stop_sequence) == (reason, sequence)
    assert end.usage.output_tokens == whole.usage.output_tokens
    told = end.usage.input_tokens + end.usage.cache_read_input_tokens
    assert told == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)


def test_an_answer_without_text_has_an_empty_block(http: httpx.Client) -> None:
    assert text_of(ask(http, body(SAY.format("")))) == ""
    kinds = [e.type for e in stream(http, body(SAY.format("")))]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_answer_continues_the_assistants_turn(http: httpx.Client) -> None:
    turns = [
        {"role": "user", "content": SAY.format("blue")},
        {"role": "assistant", "content": "The sky is "},
    ]
    fields = body(messages=turns)
    assert "The sky is" not in text_of(ask(http, fields))
    chat = http.post(
        "/tokenize",
        json={"messages": turns, "continue_final_message": True, "add_generation_prompt": False},
    ).json()
    assert ask(http, fields).usage.input_tokens <= chat["count"]
    assert count(http, fields) == chat["count"]


def count(http: httpx.Client, fields: dict[str, Any]) -> int:
    fields = {k: v for k, v in fields.items() if k not in ("max_tokens", "stream")}
    response = http.post("/v1/messages/count_tokens", json=fields)
    assert response.status_code == 200, response.text
    return strictly(MessageTokensCount, response.json()).input_tokens


@pytest.mark.parametrize("system", ["be brief", [{"type": "text", "text": "be brief"}]])
def test_the_system_prompt_and_text_blocks(http: httpx.Client, system: Any) -> None:
    fields = body(
        system=system,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}
                ],
            }
        ],
    )
    as_chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one"}]
    assert count(http, fields) == http.post("/tokenize", json={"messages": as_chat}).json()["count"]


def test_counting_agrees_with_the_usage(http: httpx.Client) -> None:
    fields = body("a fresh prompt that nobody has sent", system="a system that nobody has sent")
    usage = ask(http, fields).usage
    assert count(http, fields) == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 100_000}, "maximum context length"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "'tool_use'"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content[0].text"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 7}, "top_p"),
        ({"top_k": -5}, "top_k"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
        ({"tool_choice": {"type": "any"}}, "tool_choice needs tools"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "sometimes"}}, "tool_choice"),
        (
            {"tools": [{"name": "f", "input_schema": {}, "defer_loading": True}]},
            "tools[0].defer_loading",
        ),
        (
            {"tools": [{"name": "f", "input_schema": {}, "input_examples": [{}]}]},
            "tools[0].input_examples",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "x", "citations": [{}]}]}
                ]
            },
            "content[0].citations",
        ),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "x"}, "container"),
        ({"context_management": {"edits": [{}]}}, "context_management"),
        ({"diagnostics": {}}, "diagnostics"),
        ({"output_format": {}}, "output_format"),
        ({"speed": "fast"}, "speed"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    http: httpx.Client, fields: dict[str, Any], says: str
) -> None:
    for streams in (False, True):
        error = refusal(http, {**body(), **fields, "stream": streams})
        assert error["type"] == "invalid_request_error"
        assert says in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"user_id": "u"}},
        {"service_tier": "auto"},
        {"cache_control": {"type": "ephemeral"}},
        {"inference_geo": "x"},
        {"user_profile_id": "x"},
        {"workspace_id": "x"},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}},
        {"speed": "standard"},
        {"output_config": {"effort": "low"}},
        {"context_management": {}},
    ],
)
def test_what_cannot_change_the_answer_is_accepted(
    http: httpx.Client, fields: dict[str, Any]
) -> None:
    response = http.post("/v1/messages", json=body(**fields))
    assert response.status_code == 200, response.text
    assert "x-octavo-ignored-fields" not in response.headers


def test_unknown_fields_are_named(http: httpx.Client) -> None:
    response = http.post("/v1/messages", json=body(temprature=1))
    assert response.headers["x-octavo-ignored-fields"] == "temprature"


def test_fields_of_blocks_and_tools_that_nobody_knows_are_named(http: httpx.Client) -> None:
    block = {"type": "text", "text": SAY.format("a"), "citations": None, "mood": 1}
    tool: dict[str, Any] = {"name": "f", "input_schema": {}, "cache_control": None, "colour": 2}
    asked = body(messages=[{"role": "user", "content": [block]}], tools=[tool])
    asked["tool_choice"] = {"type": "none"}
    named = "messages[0].content[0].mood, tools[0].colour"
    response = http.post("/v1/messages", json=asked)
    assert response.headers["x-octavo-ignored-fields"] == named
    del asked["max_tokens"]
    counted = http.post("/v1/messages/count_tokens", json=asked)
    assert counted.headers["x-octavo-ignored-fields"] == named


def test_the_result_of_a_tool_that_failed_says_so(http: httpx.Client) -> None:
    def num_tokens(content: str, is_error: bool | None) -> int:
        use = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "1", "content": content}
        turns = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result | {"is_error": is_error}]},
        ]
        return count(http, body(messages=turns))

    assert num_tokens("no", True) == num_tokens("Error: no", None) > num_tokens("no", False)


def test_other_errors_have_the_shape_too(http: httpx.Client) -> None:
    assert refusal(http, body(model="gpt"), 404)["type"] == "not_found_error"
    answer = http.post(
        "/v1/messages", content="{", headers={"content-type": "application/json"}
    ).json()
    assert answer["error"]["type"] == "invalid_request_error"


def test_a_failure_in_the_middle_is_an_error_event(http: httpx.Client) -> None:
    response = http.post("/v1/messages", json=body(SAY.format("\x01\x04abc"), stream=True))
    events = read_named_events(response)
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "api_error"
    assert "message_stop" not in [event["type"] for event in events]
