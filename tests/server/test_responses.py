"""/v1/responses over HTTP; every answer and event has the types of the `openai` package."""

from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent

from octavo.server.openai.responses.store import ResponseStore, StoredResponse
from support.named_events import read_named_events
from support.typed import strictly

SAY = "<unk>{}<unk>"
URL = "/v1/responses"


def ask(http: httpx.Client, **fields: Any) -> Response:
    response = http.post(URL, json={"input": SAY.format("hello"), **fields})
    assert response.status_code == 200, response.text
    return strictly(Response, response.json())


def stream(http: httpx.Client, **fields: Any) -> list[Any]:
    body = {"input": SAY.format("hello"), **fields, "stream": True}
    events = read_named_events(http.post(URL, json=body))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return [strictly(ResponseStreamEvent, event) for event in events]  # type: ignore[arg-type]


def count(http: httpx.Client, messages: list[dict[str, Any]]) -> int:
    num_tokens: int = http.post("/tokenize", json={"messages": messages}).json()["count"]
    return num_tokens


def num_input_tokens(http: httpx.Client, **fields: Any) -> int:
    usage = ask(http, **fields).usage
    assert usage is not None
    return usage.input_tokens


def test_a_response(http: httpx.Client) -> None:
    response = ask(http, metadata={"a": "b"}, instructions="be brief", user="me")
    assert response.output_text == "hello"
    assert (response.status, response.error, response.incomplete_details) == (
        "completed",
        None,
        None,
    )
    assert (response.metadata, response.instructions, response.user) == (
        {"a": "b"},
        "be brief",
        "me",
    )
    assert response.usage is not None and response.usage.output_tokens == 6
    assert response.id.startswith("resp-") and response.output[0].id != response.id


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({}, "completed", "hello world"),
        ({"max_output_tokens": 4}, "incomplete", "hell"),
        ({"stop": ["o w"]}, "completed", "hell"),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, "completed", None),
        ({"input": SAY.format("")}, "completed", ""),
    ],
)
def test_streamed_equals_whole(
    http: httpx.Client, fields: dict[str, Any], status: str, text: str | None
) -> None:
    fields = {"input": SAY.format("hello world"), **fields}
    whole = ask(http, **fields)
    assert whole.status == status
    assert text is None or whole.output_text == text
    events = stream(http, **fields)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{status}",
    ]
    assert "".join(event.delta for event in deltas) == whole.output_text
    streamed = events[-1].response
    assert [e.token for d in deltas for e in d.logprobs] == [
        e.token for e in streamed.output[0].content[0].logprobs or ()
    ]
    same = {"id", "created_at", "completed_at", "usage", "output"}
    assert streamed.model_dump(exclude=same) == whole.model_dump(exclude=same)
    assert [part.model_dump() for part in streamed.output[0].content] == [
        part.model_dump()
        for part in whole.output[0].content  # type: ignore[union-attr]
    ]
    assert streamed.usage.total_tokens == whole.usage.total_tokens  # type: ignore[union-attr]
    assert events[-2].item == streamed.output[0]


def test_instructions_and_items_are_messages(http: httpx.Client) -> None:
    items = [
        {"role": "user", "content": "one"},
        {
            "type": "message",
            "role": "assistant",
            "id": "m",
            "status": "completed",
            "content": [{"type": "output_text", "text": "two", "annotations": []}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
    ]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    assert num_input_tokens(http, input=items, instructions="be brief") == count(http, messages)


def test_a_response_goes_on_from_an_earlier_one(http: httpx.Client) -> None:
    first = ask(http, input=SAY.format("blue"), instructions="not kept")
    second = ask(http, input=SAY.format("green"), previous_response_id=first.id)
    assert second.previous_response_id == first.id
    messages = [
        {"role": "user", "content": SAY.format("blue")},
        {"role": "assistant", "content": "blue"},
        {"role": "user", "content": SAY.format("green")},
    ]
    assert second.usage is not None and second.usage.input_tokens == count(http, messages)
    (events,) = [stream(http, input="x", previous_response_id=second.id)]
    messages += [{"role": "assistant", "content": second.output_text}]
    messages += [{"role": "user", "content": "x"}]
    assert events[-1].response.usage.input_tokens == count(http, messages)


def test_stored_responses(http: httpx.Client) -> None:
    made = ask(http, input=[{"role": "user", "content": "x"}])
    url = f"{URL}/{made.id}"
    assert strictly(Response, http.get(url).json()) == made
    items = strictly(ResponseItemList, http.get(f"{url}/input_items").json())
    assert [item.type for item in items.data] == ["message"]
    assert http.get(url, headers={"authorization": "Bearer other"}).status_code == 404
    assert http.delete(url).json() == {"id": made.id, "object": "response", "deleted": True}
    assert http.get(url).status_code == 404
    assert http.delete(url).status_code == 404
    refused = http.post(URL, json={"input": "x", "previous_response_id": made.id})
    assert refused.status_code == 404
    assert refused.json()["error"]["param"] == "previous_response_id"


def test_what_is_not_to_be_stored_is_not(http: httpx.Client) -> None:
    made = ask(http, store=False)
    assert http.get(f"{URL}/{made.id}").status_code == 404


async def test_the_store_is_bounded() -> None:
    def stored(num_bytes: int) -> StoredResponse:
        return StoredResponse(bytes(num_bytes), b"", b"")

    store = ResponseStore(max_responses=3, max_bytes=100)
    for i in range(5):
        await store.put("t", f"r{i}", stored(10))
    assert len(store) == 3
    await store.put("t", "large", stored(85))
    assert len(store) == 2  # r4 and the large one
    await store.put("t", "larger", stored(101))
    assert len(store) == 0
    await store.put("t", "r", stored(60))
    await store.put("t", "r", stored(60))  # again: takes the place of the first
    assert len(store) == 1
    assert await store.get("t", "r") == stored(60)
    assert await store.get("u", "r") is None
    assert not await store.delete("u", "r")
    assert await store.delete("t", "r")
    assert not await store.delete("t", "r")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input"),
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": [{"type": "file_search_call"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "messages"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 100_000}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_logprobs": 1000}, "top_logprobs"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"image": {}}, "image"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"background_options": {"completion_window": "2h"}}, "background_options"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        (
            {"tools": [{"type": "function", "name": "f", "defer_loading": True}]},
            "tools[0].defer_loading",
        ),
        (
            {"tools": [{"type": "function", "name": "f", "output_schema": {}}]},
            "tools[0].output_schema",
        ),
        (
            {"input": [{"type": "reasoning", "encrypted_content": "x"}]},
            "input[0].encrypted_content",
        ),
        ({"input": [{"type": "function_call", "namespace": "n"}]}, "input[0].namespace"),
        ({"metadata": {"a": 5}}, "metadata.a"),
        ({"store": "yes"}, "store"),
        ({"vllm_xargs": {"a": 1}}, "vllm_xargs"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
        ({"previous_input_messages": [{}]}, "previous_input_messages"),
        ({"enable_response_messages": True}, "enable_response_messages"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    for streams in (False, True):
        response = http.post(URL, json={"input": "x", **fields, "stream": streams})
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == param


def test_a_field_is_called_as_here_and_a_flag_as_it_is_called(http: httpx.Client) -> None:
    message = http.post(URL, json={"input": "x", "top_logprobs": 1000}).json()["error"]["message"]
    assert message.startswith("top_logprobs must be at most 20 (--max-logprobs)")


def test_a_failure_in_the_middle_is_told(http: httpx.Client) -> None:
    *_, error, failed = stream(http, input=SAY.format("\x01\x04abc"))
    assert error.type == "error" and "not finite" in error.message
    assert failed.type == "response.failed" and failed.response.status == "failed"
    assert http.get(f"{URL}/{failed.response.id}").status_code == 404


def test_fields_of_items_and_tools_that_nobody_knows_are_named(http: httpx.Client) -> None:
    item = {"role": "user", "content": SAY.format("a"), "id": "1", "phase": "commentary", "mood": 1}
    tool = {"type": "function", "name": "f", "async": False, "colour": 2}
    body = {"input": [item], "tools": [tool], "tool_choice": "none"}
    for streams in (False, True):
        response = http.post(URL, json=body | {"stream": streams})
        assert response.status_code == 200, response.text
        ignored = response.headers["x-octavo-ignored-fields"]
        assert ignored == "input[0].mood, tools[0].colour"


def test_thoughts_that_are_only_a_summary_go_back_as_that(http: httpx.Client) -> None:
    def thought(**fields: Any) -> int:
        items = [{"role": "user", "content": "x"}, {"type": "reasoning", **fields}]
        return num_input_tokens(http, input=items)

    part = {"type": "reasoning_text", "text": "so"}
    summary = [part | {"type": "summary_text"}]
    assert thought(content=[part], summary=[]) == thought(summary=summary)
