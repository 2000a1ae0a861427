"""Tool calls and reasoning in /v1/responses and /v1/messages: what the engine is made to say, whole and streamed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent

from support.named_events import read_named_events
from support.scripted_engine import MODULE
from support.server_process import MODEL_NAME, RunningServer, running_server, tiny_config
from support.typed import strictly

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
ARGUMENTS = '{"city": "Bern, \\u00fc", "days": [1, 2]}'
CALLS = (
    f'Well.\n<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)
THOUGHT = "<think>\nWhich city?\n</think>\n\n"
SCHEMA: dict[str, Any] = {"type": "object"}
FUNCTIONS = [{"type": "function", "name": n, "parameters": SCHEMA} for n in ("weather", "time")]
TOOLS = [{"name": name, "input_schema": SCHEMA} for name in ("weather", "time")]


@pytest.fixture(scope="module")
def thinking(model_folder: Path) -> Iterator[RunningServer]:
    """A server whose model is said to think, and to write calls as Hermes does."""
    with running_server(
        tiny_config(model_folder),
        engine_module=MODULE,
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
    ) as running:
        yield running


@pytest.fixture
def http(thinking: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=thinking.url, timeout=30) as client:
        yield client
    thinking.wait_idle()


def script(text: str) -> str:
    return f"<unk>{text}<unk>"


def respond(http: httpx.Client, text: str, **fields: Any) -> tuple[Response, list[Any]]:
    """A response, and the events of the same as a stream. Both say the same."""
    body = {"input": script(text), "tools": FUNCTIONS, **fields}
    answer = http.post(RESPONSES, json=body)
    assert answer.status_code == 200, answer.text
    whole = strictly(Response, answer.json())
    told = read_named_events(http.post(RESPONSES, json=body | {"stream": True}))
    events: list[Any] = [strictly(ResponseStreamEvent, event) for event in told]  # type: ignore[arg-type]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    streamed = events[-1].response
    assert _without_ids(streamed.output) == _without_ids(whole.output)
    assert [e.item for e in events if e.type == "response.output_item.done"] == streamed.output
    assert streamed.status == whole.status
    assert streamed.usage.output_tokens_details == whole.usage.output_tokens_details  # type: ignore[union-attr]
    _check_deltas(events)
    return whole, events


def _without_ids(output: list[Any]) -> list[dict[str, Any]]:
    return [item.model_dump(exclude={"id", "call_id"}) for item in output]


def _check_deltas(events: list[Any]) -> None:
    """The deltas of every item joined are its text."""
    deltas: dict[int, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            deltas[event.output_index] = deltas.get(event.output_index, "") + event.delta
    for i, item in enumerate(events[-1].response.output):
        text = item.arguments if item.type == "function_call" else item.content[0].text
        assert deltas.get(i, "") == text


def message(http: httpx.Client, text: str, **fields: Any) -> tuple[Message, list[Any]]:
    """A message, and the events of the same as a stream. Both say the same."""
    body = {
        "model": MODEL_NAME,
        "max_tokens": 300,
        "messages": [{"role": "user", "content": script(text)}],
        "tools": TOOLS,
        **fields,
    }
    answer = http.post(MESSAGES, json=body)
    assert answer.status_code == 200, answer.text
    whole = strictly(Message, answer.json())
    told = read_named_events(http.post(MESSAGES, json=body | {"stream": True}))
    events: list[Any] = [strictly(RawMessageStreamEvent, event) for event in told]  # type: ignore[arg-type]
    blocks = [e.content_block for e in events if e.type == "content_block_start"]
    assert [block.type for block in blocks] == [block.type for block in whole.content]
    for i, block in enumerate(whole.content):
        pieces = [e.delta for e in events if e.type == "content_block_delta" and e.index == i]
        if block.type == "text":
            assert "".join(piece.text for piece in pieces) == block.text
        elif block.type == "thinking":
            assert "".join(piece.thinking for piece in pieces) == block.thinking
        else:
            assert block.type == "tool_use"
            arguments = "".join(piece.partial_json for piece in pieces)
            if whole.stop_reason == "tool_use":
                assert json.loads(arguments or "{}") == block.input
    (end,) = [e for e in events if e.type == "message_delta"]
    assert end.delta.stop_reason == whole.stop_reason
    return whole, events


def test_calls_are_items_of_a_response(http: httpx.Client) -> None:
    whole, events = respond(http, THOUGHT + CALLS)
    thoughts, said, weather, clock = whole.output
    assert thoughts.type == "reasoning" and thoughts.content
    assert (thoughts.content[0].text, thoughts.summary) == ("Which city?", [])
    assert said.type == "message" and whole.output_text == "Well."
    assert weather.type == "function_call" and clock.type == "function_call"
    assert (weather.name, weather.arguments) == ("weather", ARGUMENTS)
    assert (clock.name, clock.arguments) == ("time", "{}")
    assert weather.call_id != clock.call_id and weather.id != clock.id
    assert whole.status == "completed" and {item.status for item in whole.output} == {"completed"}  # type: ignore[union-attr]
    assert whole.usage is not None
    assert whole.usage.output_tokens_details.reasoning_tokens == len("Which city?")
    of_call = [e.type for e in events if getattr(e, "output_index", None) == 2]
    assert of_call[0] == "response.output_item.added"
    assert set(of_call[1:-2]) == {"response.function_call_arguments.delta"}
    assert of_call[-2:] == [
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]


def test_calls_are_blocks_of_a_message(http: httpx.Client) -> None:
    whole, _ = message(http, CALLS)
    said, weather, clock = whole.content
    assert said.type == "text" and said.text == "Well."
    assert weather.type == "tool_use" and clock.type == "tool_use"
    assert (weather.name, weather.input) == ("weather", json.loads(ARGUMENTS))
    assert (clock.name, clock.input) == ("time", {})
    assert weather.id != clock.id and whole.stop_reason == "tool_use"


def test_thoughts_of_a_message_are_shown_if_asked_for(http: httpx.Client) -> None:
    for thinking in (None, {"type": "disabled"}, {"type": "adaptive", "display": "omitted"}):
        hidden, _ = message(http, THOUGHT + "Yes.", thinking=thinking)
        assert [block.type for block in hidden.content] == ["text"]
    shown, _ = message(http, THOUGHT + "Yes.", thinking={"type": "adaptive"})
    thoughts, said = shown.content
    assert thoughts.type == "thinking" and thoughts.thinking == "Which city?"
    assert said.type == "text" and said.text == "Yes." and shown.stop_reason == "end_turn"


def test_what_the_token_limit_cuts(http: httpx.Client) -> None:
    place = CALLS.index("days") + 1
    cut, _ = respond(http, CALLS, max_output_tokens=place)
    said, call = cut.output
    assert said.type == "message" and said.status == "completed"
    assert call.type == "function_call" and call.status == "incomplete"
    assert cut.status == "incomplete" and ARGUMENTS.startswith(call.arguments)
    half, _ = message(http, CALLS, max_tokens=place)
    block = half.content[1]
    assert block.type == "tool_use" and block.input == {"city": "Bern, ü"}
    assert half.stop_reason == "max_tokens"
    thoughts, _ = respond(http, THOUGHT, max_output_tokens=12)
    assert [(item.type, item.status) for item in thoughts.output] == [("reasoning", "incomplete")]  # type: ignore[union-attr]


def test_one_call_or_none(http: httpx.Client) -> None:
    one, _ = respond(http, CALLS, parallel_tool_calls=False)
    assert [item.type for item in one.output] == ["message", "function_call"]
    none, _ = respond(http, CALLS, tool_choice="none")
    assert none.output_text == CALLS
    single, _ = message(
        http, CALLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True}
    )
    assert [block.type for block in single.content] == ["text", "tool_use"]
    silent, _ = message(http, CALLS, tool_choice={"type": "none"})
    (block,) = silent.content
    assert block.type == "text" and block.text == CALLS and silent.stop_reason == "end_turn"


def test_a_round_trip_goes_on_as_chat_would(http: httpx.Client) -> None:
    """The items of an answer, sent back or taken from the store, make the prompt of chat."""
    first, _ = respond(http, CALLS)
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        for item in first.output
        if item.type == "function_call"
    ]
    stored, _ = respond(http, "", input=results, previous_response_id=first.id)
    asked = [{"role": "user", "content": script(CALLS)}]
    items = [item.model_dump(exclude_none=True) for item in first.output]
    sent, _ = respond(http, "", input=[*asked, *items, *results])
    calls = [
        {"id": r["call_id"], "type": "function", "function": {"name": n, "arguments": a}}
        for r, n, a in zip(results, ("weather", "time"), (ARGUMENTS, "{}"), strict=True)
    ]
    chat: list[dict[str, Any]] = [
        *asked,
        {"role": "assistant", "content": "Well.", "tool_calls": calls},
        *({"role": "tool", "tool_call_id": r["call_id"], "content": "sunny"} for r in results),
    ]
    tools = [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in ("weather", "time")]  # fmt: skip
    count = http.post("/tokenize", json={"messages": chat, "tools": tools}).json()["count"]
    assert stored.usage is not None and sent.usage is not None
    assert stored.usage.input_tokens == sent.usage.input_tokens == count
    listed = http.get(f"{RESPONSES}/{stored.id}/input_items").json()
    kinds = [item.type for item in strictly(ResponseItemList, listed).data]
    assert kinds == ["function_call_output"] * 2


def test_logprobs_of_answers_in_parts_are_refused_by_name(http: httpx.Client) -> None:
    for fields, name in (
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
    ):
        refused = http.post(RESPONSES, json={"input": "x", **fields})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == name
