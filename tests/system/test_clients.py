"""Clients that people have, unchanged, against a real server: anthropic, openai's newer routes, litellm, LangChain."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import SecretStr

from support.command import environment
from support.server_process import RunningServer

MODEL = "tiny"
PRINTABLE = list(range(4, 98))
"""Tokens of one ASCII character: texts of others may be half a character."""
KEY = "none"


@pytest.fixture
def claude(real: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=real.url, api_key=KEY, max_retries=0) as client:
        yield client
    real.wait_idle()


def said(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 12,
    "system": "be brief",
    "messages": [{"role": "user", "content": "hello"}],
    "extra_body": {"temperature": 0.0},
}


def test_anthropic_whole_and_streamed(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(**ASK)
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 12
    with claude.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == said(whole) == said(final)
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 12)
    kinds = [event.type for event in claude.messages.create(**ASK, stream=True)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_anthropic_counts_and_names_errors(claude: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    counted = claude.messages.count_tokens(model=MODEL, messages=messages)
    answer = claude.messages.create(model=MODEL, max_tokens=1, messages=messages)
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(model="claude", max_tokens=1, messages=messages)
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        claude.messages.create(model=MODEL, max_tokens=10_000, messages=messages)


async def test_anthropic_asynchronously(real: RunningServer) -> None:
    async with anthropic.AsyncAnthropic(base_url=real.url, api_key=KEY, max_retries=0) as client:
        answers = await asyncio.gather(*(client.messages.create(**ASK) for _ in range(8)))
    assert len({said(answer) for answer in answers}) == 1
    real.wait_idle()


def test_openai_responses(openai_client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 10}
    first = openai_client.responses.create(input="hello", instructions="be brief", **options)
    assert first.status == "incomplete" and first.usage is not None
    assert first.usage.output_tokens == 10
    # The helper wants a response that is complete.
    ends: dict[str, Any] = {"extra_body": {"stop_token_ids": [*range(0, 260, 3)], "seed": 4}}
    ended = openai_client.responses.create(model=MODEL, input="hello", **ends)
    with openai_client.responses.stream(model=MODEL, input="hello", **ends) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.status == "completed"
    assert text == ended.output_text == final.output_text
    second = openai_client.responses.create(input="and?", previous_response_id=first.id, **options)
    assert openai_client.responses.retrieve(second.id) == second
    assert [item.type for item in openai_client.responses.input_items.list(second.id)] == [
        "message"
    ]
    openai_client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve(second.id)


WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Bern"]}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
QUESTION: Any = {"role": "user", "content": "weather?"}


def test_an_openai_tool_round_trip(roomy: RunningServer) -> None:
    with openai.OpenAI(base_url=f"{roomy.url}/v1", api_key=KEY, max_retries=0) as client:
        _go_round_with_openai(client)


def _go_round_with_openai(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}
    asked: dict[str, Any] = {
        "model": MODEL,
        "tools": [tool],
        "temperature": 0,
        "parallel_tool_calls": False,
        "tool_choice": "required",
    }
    first = client.responses.create(input=[QUESTION], **asked)
    (call,) = first.output
    assert call.type == "function_call" and call.name == "weather"
    assert json.loads(call.arguments)["city"] in ("Rome", "Bern")
    with client.responses.stream(input=[QUESTION], **asked) as stream:
        deltas = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
        (streamed,) = stream.get_final_response().output
    assert streamed.type == "function_call" and streamed.arguments == call.arguments
    assert "".join(deltas) == call.arguments
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    answers = asked | {"tool_choice": "none", "max_output_tokens": 8}
    stored = client.responses.create(input=[result], previous_response_id=first.id, **answers)
    # The item itself goes back, as the client's users do it.
    sent: Any = [QUESTION, call, result]
    again = client.responses.create(input=sent, **answers)
    assert stored.usage is not None and again.usage is not None
    assert stored.usage.input_tokens == again.usage.input_tokens
    assert stored.output_text == again.output_text != ""


def test_an_anthropic_tool_round_trip(roomy: RunningServer) -> None:
    with anthropic.Anthropic(base_url=roomy.url, api_key=KEY, max_retries=0) as client:
        _go_round_with_anthropic(client)


def _go_round_with_anthropic(client: anthropic.Anthropic) -> None:
    tool: Any = {"name": "weather", "description": "of a city", "input_schema": WEATHER}
    asked: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 150,
        "tools": [tool],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "extra_body": {"temperature": 0.0},
    }
    first = client.messages.create(messages=[QUESTION], **asked)
    assert first.stop_reason == "tool_use"
    (call,) = first.content
    assert call.type == "tool_use" and call.name == "weather"
    assert call.input["city"] in ("Rome", "Bern")
    with client.messages.stream(messages=[QUESTION], **asked) as stream:
        pieces = [e.partial_json for e in stream if e.type == "input_json"]
        final = stream.get_final_message()
    (streamed,) = final.content
    assert streamed.type == "tool_use" and streamed.input == call.input
    assert json.loads("".join(pieces)) == call.input and final.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    turns: Any = [
        QUESTION,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    answers = asked | {"tool_choice": {"type": "none"}, "max_tokens": 8}
    second = client.messages.create(messages=turns, **answers)
    assert said(second) and second.stop_reason == "max_tokens"


async def test_openai_responses_asynchronously(async_openai: openai.AsyncOpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 10}
    whole = await async_openai.responses.create(input="x", **options)
    parts = []
    async for event in await async_openai.responses.create(input="x", stream=True, **options):
        if event.type == "response.output_text.delta":
            parts.append(event.delta)
    assert "".join(parts) == whole.output_text


async def test_openai_embeddings(async_openai: openai.AsyncOpenAI) -> None:
    answer = await async_openai.embeddings.create(model=MODEL, input=["a", "b"], dimensions=8)
    assert [len(item.embedding) for item in answer.data] == [8, 8]


def test_litellm(real: RunningServer) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "support.litellm_asks", real.url, MODEL],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["num_tokens"] == 8 and found["refused"] == "BadRequestError"
    assert found["openai"] == found["streamed"] == found["vllm"] == found["anthropic"]
    real.wait_idle()


def test_langchain(real: RunningServer) -> None:
    url, key = f"{real.url}/v1", SecretStr(KEY)
    chat = ChatOpenAI(
        model=MODEL,
        base_url=url,
        api_key=key,
        temperature=0,
        max_completion_tokens=8,
        max_retries=0,
    )
    talk = [SystemMessage("be brief"), HumanMessage("a"), AIMessage("b"), HumanMessage("c")]
    whole = chat.invoke(talk)
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] == 8
    assert "".join(str(chunk.content) for chunk in chat.stream(talk)) == whole.content
    assert [answer.content for answer in chat.batch([talk, talk])] == [whole.content] * 2
    responses = ChatOpenAI(
        model=MODEL,
        base_url=url,
        api_key=key,
        temperature=0,
        max_completion_tokens=8,
        use_responses_api=True,
    )
    assert responses.invoke(talk).text == whole.content
    text = OpenAI(model=MODEL, base_url=url, api_key=key, temperature=0, max_tokens=8)
    assert "".join(text.stream("once")) == text.invoke("once")
    embeddings = OpenAIEmbeddings(
        model=MODEL, base_url=url, api_key=key, check_embedding_ctx_length=False
    )
    assert len(embeddings.embed_documents(["a", "b"])) == 2
    real.wait_idle()
