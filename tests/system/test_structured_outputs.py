"""Structured output and tools as people use them: the official client, the real server, the default model."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pytest
from pydantic import BaseModel

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from support.server_process import RunningServer, running_server

pytestmark = pytest.mark.model
MODEL = "smollm2"


class Pet(BaseModel):
    """A pet."""

    name: str
    kind: Literal["cat", "dog"]
    age: int
    friends: list[str]


class GetWeather(BaseModel):
    """The weather of a city."""

    city: Literal["Bern", "Rome", "Oslo"]
    days: int


@pytest.fixture(scope="module")
def server(smollm2_path: Path) -> Iterator[RunningServer]:
    engine = EngineConfig(
        model=ModelConfig(model=str(smollm2_path)), cache=CacheConfig(num_blocks=1024)
    )
    with running_server(engine, served_model_names=(MODEL,)) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client
        server.wait_idle()


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def options(text: str, **more: Any) -> dict[str, Any]:
    return {
        "model": MODEL, "messages": user(text), "temperature": 0, "max_tokens": 200, "frequency_penalty": 0.5, **more,
    }  # fmt: skip


def test_parse_with_pydantic(client: openai.OpenAI) -> None:
    asked = options("Rex is a dog of 3 years. His friends are Tom and Kim.")
    answer = client.chat.completions.parse(**asked, response_format=Pet)
    pet = answer.choices[0].message.parsed
    assert isinstance(pet, Pet) and answer.choices[0].finish_reason == "stop"
    with client.chat.completions.stream(**asked, response_format=Pet) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == pet


def test_parse_with_tools(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(GetWeather)
    asked = options("Weather in Rome for 2 days?", tools=[tool], tool_choice="required")
    answer = client.chat.completions.parse(**asked, parallel_tool_calls=False)
    (call,) = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.content is None
    # The call and its result go back.
    messages = [
        *user("Weather in Rome for 2 days?"),
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    asked = options("", tools=[tool], tool_choice="none") | {"messages": messages, "max_tokens": 8}
    assert client.chat.completions.create(**asked).choices[0].message.content


@pytest.mark.parametrize("choice", ["required", "named"])
def test_calls_that_must_come_are_streamed_as_they_are_whole(
    client: openai.OpenAI, choice: str
) -> None:
    tools = [
        {
            "type": "function",
            "function": {"name": name, "parameters": GetWeather.model_json_schema()},
        }
        for name in ("now", "later")
    ]
    named: Any = {"type": "function", "function": {"name": "later"}}
    asked = options("Rome?", tools=tools, tool_choice=named if choice == "named" else choice)
    whole = client.chat.completions.create(**asked).choices[0]
    calls = [(c.function.name, c.function.arguments) for c in whole.message.tool_calls or []]
    assert calls and all(name in ("now", "later") for name, _ in calls)
    if choice == "named":
        assert [name for name, _ in calls] == ["later"]
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    streamed = [(c.function.name, c.function.arguments) for c in final.message.tool_calls or []]
    assert streamed == calls and final.finish_reason == whole.finish_reason
    if whole.finish_reason == "tool_calls":
        assert all(GetWeather.model_validate_json(arguments) for _, arguments in calls)


FORMS: list[tuple[dict[str, Any], Any]] = [
    ({"guided_choice": ["yes", "no"]}, ("yes", "no")),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, ("yes", "no")),
    ({"guided_regex": "[a-c]{4}"}, None),
    ({"guided_grammar": 'root ::= ("a" | "b") "c"'}, ("ac", "bc")),
    ({"response_format": {"type": "json_object"}}, None),
    ({"guided_json": json.dumps(Pet.model_json_schema())}, None),
]


@pytest.mark.parametrize(("form", "answers"), FORMS)
def test_every_form_holds_whatever_is_drawn(
    client: openai.OpenAI, form: dict[str, Any], answers: Any
) -> None:
    """With other options beside it: samples, log-probabilities, filters, biases, speculation (on by default)."""
    more = {
        "n": 3,
        "temperature": 1.5,
        "seed": 5,
        "logprobs": True,
        "logit_bias": {"30": 5},
        "presence_penalty": 0.5,
        "max_tokens": 50,
    }
    answer = client.chat.completions.create(
        **options("Hm?", **more, extra_body={**form, "min_p": 1e-4})
    )
    assert len(answer.choices) == 3
    for choice in answer.choices:
        text = choice.message.content or ""
        if choice.finish_reason == "length":
            continue
        assert choice.finish_reason == "stop"
        if answers is not None:
            assert text in answers
        elif "guided_regex" in form:
            assert len(text) == 4 and set(text) <= set("abc")
        elif "guided_json" in form:
            Pet.model_validate_json(text)
        else:
            assert isinstance(json.loads(text), dict)
        assert choice.logprobs is not None and choice.logprobs.content
    joined = ["", "", ""]
    for chunk in client.chat.completions.create(
        **options("Hm?", **more, extra_body={**form, "min_p": 1e-4}), stream=True
    ):
        for part in chunk.choices:
            joined[part.index] += part.delta.content or ""
    assert joined == [choice.message.content for choice in answer.choices]


def test_completions_too_and_what_is_cut_says_so(client: openai.OpenAI) -> None:
    schema = {
        "type": "array",
        "items": {"type": "integer", "maximum": 99, "minimum": 10},
        "minItems": 4,
        "maxItems": 4,
    }
    asked: dict[str, Any] = {"model": MODEL, "prompt": "Four numbers:", "temperature": 0}
    form = {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
    whole = client.completions.create(**asked, max_tokens=40, extra_body=form).choices[0]
    jsonschema.validate(json.loads(whole.text), schema)
    assert whole.finish_reason == "stop"
    cut = client.completions.create(**asked, max_tokens=5, extra_body=form).choices[0]
    assert cut.finish_reason == "length" and whole.text.startswith(cut.text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "("},
        {"type": "what"},
        {"$ref": "#/$defs/nowhere"},
        {"not": {"type": "string"}},
        {"enum": []},
        False,
        None,
    ],
)
def test_what_cannot_be_followed_is_refused_before_the_stream(
    client: openai.OpenAI, schema: Any
) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="response_format"):
            client.chat.completions.create(**options("x", response_format=form, stream=stream))


def test_large_schemas_do_not_stop_other_streams(client: openai.OpenAI) -> None:
    def compiled(number: int) -> str:
        values = [f"value {number} {i}" for i in range(8000)]
        form = {"guided_json": {"enum": values}}
        answer = client.chat.completions.create(**options("x", max_tokens=30, extra_body=form))
        return answer.choices[0].message.content or ""

    with ThreadPoolExecutor() as threads:
        compiling = [threads.submit(compiled, number) for number in range(4)]
        gaps, last = [], time.monotonic()
        for _ in client.completions.create(
            model=MODEL, prompt="Once", max_tokens=60, stream=True, temperature=0
        ):
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        assert all(answer.result().startswith('"value') for answer in compiling)
    assert max(gaps) < 5


def test_tools_whose_schema_cannot_be_followed_are_refused_with_the_place(
    client: openai.OpenAI, server: RunningServer
) -> None:
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    function = {"name": "f", "parameters": schema}
    asked = [
        ("chat/completions", "function.parameters", {
            "messages": user("x"), "tools": [{"type": "function", "function": function}], "tool_choice": "required"}),
        ("chat/completions", "function.parameters", {
            "messages": user("x"), "tools": [{"type": "function", "function": {**function, "strict": True}}]}),
        ("responses", "parameters", {
            "input": "x", "tools": [{"type": "function", **function}], "tool_choice": "required"}),
        ("messages", "input_schema", {
            "model": MODEL, "max_tokens": 9, "messages": user("x"), "tools": [{"name": "f", "input_schema": schema}],
            "tool_choice": {"type": "any"}}),
    ]  # fmt: skip
    for path, place, body in asked:
        for stream in (False, True):
            refused = httpx.post(f"{server.url}/v1/{path}", json={**body, "stream": stream})
            assert refused.status_code == 400, refused.text
            message = refused.json()["error"]["message"]
            assert message.startswith(f"tools[0].{place}.properties.a.not: Unimplemented"), message
            assert refused.json()["error"].get("param", "tools") == "tools"


def test_beams_follow_no_grammar(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="guided_regex is not supported with use_beam"):
        client.completions.create(
            model=MODEL, prompt="x", n=2, extra_body={"use_beam_search": True, "guided_regex": "a"}
        )
