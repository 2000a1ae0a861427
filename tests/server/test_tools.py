"""Tool calls and reasoning over HTTP: what the engine is made to say, whole and streamed, in every family's format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.text.answer.tool_formats import TOOL_FORMATS
from support.scripted_engine import MODULE
from support.server_process import MODEL_NAME, RunningServer, running_server, tiny_config

URL = "/v1/chat/completions"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("weather", "time")
]
ARGUMENTS = '{"city": "Bern, \\u00fc", "days": [1, 2]}'
CALLS = {
    "hermes": f'Well.\n<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>',
    "llama3_json": f'{{"name": "weather", "parameters": {ARGUMENTS}}}; {{"name": "time", "parameters": {{}}}}',
    "mistral": f'Well.[TOOL_CALLS][{{"name": "weather", "arguments": {ARGUMENTS}}}, {{"name": "time", "arguments": {{}}}}]',
}


@pytest.fixture(scope="module", params=sorted(TOOL_FORMATS))
def family(
    request: pytest.FixtureRequest, model_folder: Path
) -> Iterator[tuple[str, RunningServer]]:
    """A server whose model is said to write calls in one of the formats."""
    with running_server(
        tiny_config(model_folder),
        engine_module=MODULE,
        tool_call_parser=request.param,
        reasoning_parser="qwen3",
    ) as running:
        yield request.param, running
        running.wait_idle()


@pytest.fixture
def client(family: tuple[str, RunningServer]) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{family[1].url}/v1", api_key="none", max_retries=0)


def script(text: str) -> Any:
    return [{"role": "user", "content": f"<unk>{text}<unk>"}]


def streamed(client: openai.OpenAI, **fields: Any) -> dict[str, Any]:
    """A stream, put together as clients do."""
    message: dict[str, Any] = {"content": None, "tool_calls": {}, "reasoning": None}
    for chunk in client.chat.completions.create(model=MODEL_NAME, stream=True, **fields):
        for choice in chunk.choices:
            delta = choice.delta
            if delta.content:
                message["content"] = (message["content"] or "") + delta.content
            if text := getattr(delta, "reasoning_content", None):
                message["reasoning"] = (message["reasoning"] or "") + text
            for part in delta.tool_calls or []:
                assert part.function is not None
                call = message["tool_calls"].setdefault(part.index, ["", ""])
                call[0] += part.function.name or ""
                call[1] += part.function.arguments or ""
                assert (part.id is not None) == (part.function.name is not None)
            message["finish"] = choice.finish_reason
    message["tool_calls"] = [tuple(call) for call in message["tool_calls"].values()]
    return message


def whole(client: openai.OpenAI, **fields: Any) -> dict[str, Any]:
    answer = client.chat.completions.create(model=MODEL_NAME, **fields)
    (choice,) = answer.choices
    calls = choice.message.tool_calls or []
    assert all(call.type == "function" for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    return {
        "content": choice.message.content or None,
        "tool_calls": [
            (c.function.name, c.function.arguments) for c in calls if c.type == "function"
        ],
        "reasoning": getattr(choice.message, "reasoning_content", None),
        "finish": choice.finish_reason,
    }


def both(client: openai.OpenAI, text: str, **fields: Any) -> dict[str, Any]:
    """An answer, whole and streamed: the same."""
    body = {"messages": script(text), "tools": TOOLS, **fields}
    found = whole(client, **body)
    assert streamed(client, **body) == found
    return found


def test_calls_streamed_and_whole(family: tuple[str, RunningServer], client: openai.OpenAI) -> None:
    found = both(client, CALLS[family[0]])
    assert found["tool_calls"] == [("weather", ARGUMENTS), ("time", "{}")]
    assert found["finish"] == "tool_calls"
    assert found["content"] == ("Well." if "Well" in CALLS[family[0]] else None)
    assert json.loads(found["tool_calls"][0][1])["days"] == [1, 2]


def test_options_beside_calls(family: tuple[str, RunningServer], client: openai.OpenAI) -> None:
    text = CALLS[family[0]]
    one = both(client, text, parallel_tool_calls=False)
    assert one["tool_calls"] == [("weather", ARGUMENTS)]
    none = both(client, text, tool_choice="none")
    assert none["content"] == text and none["tool_calls"] == [] and none["finish"] == "stop"
    place = text.index("days") + 1
    cut = both(client, text, max_tokens=place)
    assert cut["finish"] == "length" and ARGUMENTS.startswith(cut["tool_calls"][0][1])
    plain = both(client, "Just text <b>. ")
    assert plain["content"] == "Just text <b>. " and plain["finish"] == "stop"
    asked: dict[str, Any] = {"messages": script(text), "tools": TOOLS, "logprobs": True}
    logged: Any = client.chat.completions.create(model=MODEL_NAME, **asked, stream=True)
    tokens = [
        t for c in logged if c.choices[0].logprobs for t in c.choices[0].logprobs.content or []
    ]
    assert b"".join(bytes(t.bytes or []) for t in tokens).decode().startswith(text)


def test_reasoning_is_apart(family: tuple[str, RunningServer], client: openai.OpenAI) -> None:
    text = f"<think>\nWhich city?\n</think>\n\n{CALLS[family[0]]}"
    found = both(client, text)
    assert found["reasoning"] == "Which city?" and len(found["tool_calls"]) == 2
    left_out = both(client, text, extra_body={"include_reasoning": False})
    assert left_out["reasoning"] is None and len(left_out["tool_calls"]) == 2
    no_tools = both(client, "<think>a</think>b", tools=[])
    assert (no_tools["reasoning"], no_tools["content"]) == ("a", "b")


def test_tools_reach_a_template_that_knows_none(http: httpx.Client, server: RunningServer) -> None:
    def prompt(**fields: Any) -> str:
        answer = http.post("/tokenize", json={"return_token_strs": True, **fields}).json()
        return str(http.post("/detokenize", json={"tokens": answer["tokens"]}).json()["prompt"])

    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]  # fmt: skip
    text = prompt(messages=messages, tools=TOOLS)
    assert text.startswith("<bos><|turn|>system:Be brief.\nYou may call functions")
    assert '{"type": "function", "function": {"name": "weather"' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>' in text
    assert "<|turn|>user:<tool_response>\nsunny\n</tool_response>" in text
    assert "You may call" not in prompt(messages=messages)
