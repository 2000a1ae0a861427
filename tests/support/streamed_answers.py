"""Answers as streams against the same answers whole, of every API that generates text."""

from collections.abc import Iterator
from typing import Any

import httpx
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.responses import Response, ResponseStreamEvent
from pydantic_core import from_json

from support.named_events import read_named_events
from support.sse import read_stream
from support.typed import strictly

Json = dict[str, Any]


def check_equal(whole: Json, stream: httpx.Response) -> None:
    """The stream says what the whole answer says. What an earlier request has left in the prefix cache does not count."""
    if "choices" in whole:
        _check_choices(whole, stream)
    elif whole.get("object") == "response":
        _check_response(whole, stream)
    else:
        _check_message(whole, stream)


def without_ids(answer: Json) -> Any:
    """What is said and why it ended. Ids are random."""
    if "choices" in answer:
        for choice in answer["choices"]:
            for call in choice.get("message", {}).get("tool_calls") or ():
                del call["id"]
        return answer["choices"]
    parts = answer["output"] if "output" in answer else answer["content"]
    said = [{k: v for k, v in part.items() if k not in ("id", "call_id")} for part in parts]
    return said, answer.get("status"), answer.get("stop_reason"), answer.get("stop_sequence")


def _check_choices(whole: Json, response: httpx.Response) -> None:
    stream = read_stream(response)
    for choice in whole["choices"]:
        index = choice["index"]
        text = choice["text"] if "text" in choice else choice["message"]["content"] or ""
        parts = stream.choices(index)
        assert stream.texts[index] == text
        assert _streamed_calls(parts) == _calls(choice)
        assert stream.finish_reasons[index] == [choice["finish_reason"]]
        assert parts[-1].get("stop_reason") == choice["stop_reason"]
        assert _joined(part.get("token_ids") for part in parts) == (choice.get("token_ids") or [])
        logprobs = choice["logprobs"] or {}
        for name, values in logprobs.items():
            assert _joined((part["logprobs"] or {}).get(name) for part in parts) == values
    assert stream.usage is not None
    cached = {"prompt_tokens_details": None}
    assert stream.usage | cached == whole["usage"] | cached


def _check_response(whole: Json, response: httpx.Response) -> None:
    events = read_named_events(response)
    for event in events:
        strictly(ResponseStreamEvent, event)  # type: ignore[arg-type]
    strictly(Response, whole)
    streamed = events[-1]["response"]
    assert without_ids(streamed) == without_ids(whole)
    told = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert told == streamed["output"]
    for i, item in enumerate(streamed["output"]):
        mine = [e for e in events if e.get("output_index") == i and e["type"].endswith(".delta")]
        text = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        assert "".join(event["delta"] for event in mine) == text
    cached = {"input_tokens_details": None}
    assert streamed["usage"] | cached == whole["usage"] | cached


def _check_message(whole: Json, response: httpx.Response) -> None:
    events = read_named_events(response)
    for event in events:
        strictly(RawMessageStreamEvent, event)  # type: ignore[arg-type]
    strictly(Message, whole)
    streamed = dict(events[0]["message"])
    streamed["content"] = [_block(events, i) for i in range(len(whole["content"]))]
    (end,) = [e for e in events if e["type"] == "message_delta"]
    assert without_ids(streamed | end["delta"]) == without_ids(whole)
    assert _num_tokens(end["usage"]) == _num_tokens(whole["usage"])


def _block(events: list[Json], index: int) -> Json:
    """A content block put together from its events, as the client's package does it."""
    mine = [e for e in events if e.get("index") == index]
    assert (mine[0]["type"], mine[-1]["type"]) == ("content_block_start", "content_block_stop")
    block: Json = dict(mine[0]["content_block"])
    deltas = [event["delta"] for event in mine[1:-1]]
    if block["type"] == "tool_use":
        text = "".join(delta["partial_json"] for delta in deltas)
        return block | {"input": from_json(text, allow_partial=True) if text else {}}
    return block | {block["type"]: "".join(delta[block["type"]] for delta in deltas)}


def _num_tokens(usage: Json) -> tuple[int, int]:
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]


def _calls(choice: Json) -> list[list[str]]:
    """Names and arguments."""
    functions = [call["function"] for call in choice.get("message", {}).get("tool_calls") or ()]
    return [[function["name"], function["arguments"]] for function in functions]


def _streamed_calls(parts: list[Json]) -> list[list[str]]:
    calls: list[list[str]] = []
    for part in parts:
        for piece in part.get("delta", {}).get("tool_calls") or ():
            if piece["index"] == len(calls):
                calls.append([piece["function"]["name"], ""])
            calls[piece["index"]][1] += piece["function"]["arguments"]
    return calls


def _joined(lists: Iterator[list[Any] | None]) -> list[Any]:
    return [value for values in lists for value in values or ()]
