"""Clients of Text Generation Inference: `huggingface_hub`'s, and the older `text-generation` in an environment of its own."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from huggingface_hub import (
    InferenceClient,
    TextGenerationInputGrammarType,
    TextGenerationOutput,
)
from huggingface_hub.errors import BadRequestError, OverloadedError, ValidationError

from octavo.evaluation.comparison.peers.environment import Environment
from octavo.evaluation.comparison.peers.peer import PeerError
from support.server_process import RunningServer

PROMPT = "<unk>hello world<unk>"
ANSWER = "hello world"
TEXT_GENERATION = Environment("text-generation-client", ("text-generation==0.7.0",))


@pytest.fixture
def hub(scripted: RunningServer) -> Iterator[InferenceClient]:
    yield InferenceClient(model=scripted.url, timeout=60)
    scripted.wait_idle()


def test_hub_text_generation(hub: InferenceClient) -> None:
    assert hub.text_generation(PROMPT, max_new_tokens=40) == ANSWER
    full = hub.text_generation(PROMPT, max_new_tokens=40, return_full_text=True)
    assert full == PROMPT + ANSWER


def test_hub_details(hub: InferenceClient) -> None:
    output = hub.text_generation(
        PROMPT,
        details=True,
        decoder_input_details=True,
        top_n_tokens=2,
        best_of=2,
        do_sample=True,
        max_new_tokens=40,
    )
    assert isinstance(output, TextGenerationOutput)
    details = output.details
    assert details is not None
    assert details.finish_reason == "eos_token"
    assert details.generated_tokens == len(details.tokens)
    assert details.prefill[0].logprob is None or details.prefill[0].logprob == 0
    assert len(details.prefill) > 2
    assert details.top_tokens is not None
    assert all(len(top) == 2 for top in details.top_tokens)
    assert details.best_of_sequences is not None
    assert len(details.best_of_sequences) == 1


def test_hub_stream(hub: InferenceClient) -> None:
    # As TGI's own: the texts of special tokens come too, and details mark them.
    parts_of_text = hub.text_generation(PROMPT, stream=True, max_new_tokens=40)
    assert "".join(parts_of_text) == f"{ANSWER}<eos>"
    *parts, last = hub.text_generation(PROMPT, stream=True, details=True, max_new_tokens=40)
    assert all(part.generated_text is None for part in parts)
    assert last.generated_text == ANSWER
    assert last.details is not None
    assert last.details.finish_reason == "eos_token"
    assert last.token.special


def test_hub_stops_and_errors(hub: InferenceClient) -> None:
    assert hub.text_generation(PROMPT, stop=["o w"], max_new_tokens=40) == "hello w"
    with pytest.raises(ValidationError, match=r"`top_p` must be > 0\.0 and < 1\.0"):
        hub.text_generation(PROMPT, top_p=1.0)
    with pytest.raises(ValidationError, match="must be <="):
        hub.text_generation(PROMPT, max_new_tokens=10**6, stream=True)
    assert not issubclass(ValidationError, OverloadedError)


def test_hub_chat_and_info(hub: InferenceClient, scripted: RunningServer) -> None:
    answer = hub.chat_completion([{"role": "user", "content": PROMPT}], max_tokens=40)
    assert answer.choices[0].message.content == ANSWER
    endpoint = InferenceClient(model=scripted.url, provider="hf-inference", timeout=60)
    assert endpoint.get_endpoint_info()["model_id"] == "tiny"
    assert endpoint.health_check()


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Bern"]}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
REGEX = "[0-9]{3}-[a-f]{2}"


def test_hub_grammar(real: RunningServer) -> None:
    client = InferenceClient(model=real.url, timeout=60)
    for kind, value in (("regex", REGEX), ("json", SCHEMA), ("json_schema", {"schema": SCHEMA})):
        grammar = TextGenerationInputGrammarType(type=kind, value=value)  # type: ignore[arg-type]
        text = client.text_generation("abc", grammar=grammar, max_new_tokens=80)
        if kind == "regex":
            assert re.fullmatch(REGEX, text)
        else:
            jsonschema.validate(json.loads(text), SCHEMA)
        *_, last = client.text_generation(
            "abc", grammar=grammar, max_new_tokens=80, stream=True, details=True
        )
        assert last.generated_text == text
    with pytest.raises(ValidationError, match="grammar is not valid"):
        wrong = TextGenerationInputGrammarType(type="regex", value="[")
        client.text_generation("abc", grammar=wrong)
    real.wait_idle()


def test_hub_chat_with_a_schema(real: RunningServer) -> None:
    """This client sends a schema as TGI's `value`, beside the type json_object."""
    client = InferenceClient(model=real.url, timeout=60)
    form: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
    question = [{"role": "user", "content": "abc"}]
    asked: dict[str, Any] = {"max_tokens": 80, "temperature": 0.0, "response_format": form}
    answer = client.chat_completion(question, **asked).choices[0].message.content
    jsonschema.validate(json.loads(answer or ""), SCHEMA)
    chunks = list(client.chat_completion(question, stream=True, **asked))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer
    real.wait_idle()


@pytest.mark.parametrize("choice", ["required", "travel", {"function": {"name": "travel"}}])
def test_hub_tools(roomy: RunningServer, choice: Any) -> None:
    client = InferenceClient(model=roomy.url, timeout=60)
    tools: Any = [{"type": "function", "function": {"name": "travel", "parameters": SCHEMA}}]
    question = [{"role": "user", "content": "where?"}]
    asked: dict[str, Any] = {"max_tokens": 200, "temperature": 0.0, "tools": tools}
    asked["extra_body"] = {"parallel_tool_calls": False}
    (whole,) = client.chat_completion(question, tool_choice=choice, **asked).choices
    assert whole.finish_reason == "tool_calls"
    call = (whole.message.tool_calls or [])[0]
    assert call.function.name == "travel"
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    arguments = ""
    for chunk in client.chat_completion(question, tool_choice=choice, stream=True, **asked):
        for delta in chunk.choices[0].delta.tool_calls or []:
            if delta.index == 0:
                arguments += delta.function.arguments or ""
    assert arguments == call.function.arguments
    with pytest.raises(BadRequestError, match="tool_choice must be"):
        client.chat_completion(question, **(asked | {"tool_choice": "fly"}))
    with pytest.raises(BadRequestError, match="tool_prompt is not supported"):
        client.chat_completion(question, tool_prompt="You have tools:", **asked)
    roomy.wait_idle()


_SCRIPT = """
import json, sys
from text_generation import Client
from text_generation.errors import ValidationError
from text_generation.types import Grammar, GrammarType
url, prompt, real_url, regex, schema = sys.argv[1:]
client = Client(url, timeout=60)
whole = client.generate(prompt, max_new_tokens=40, decoder_input_details=True, top_n_tokens=2)
events = list(client.generate_stream(prompt, max_new_tokens=40))
stopped = client.generate(prompt, max_new_tokens=40, stop_sequences=["o w"])
try:
    client.generate(prompt, max_new_tokens=10**6)
    error = ""
except ValidationError as raised:
    error = str(raised)
real = Client(real_url, timeout=60)
grammar = Grammar(type=GrammarType.Regex, value=regex)
bound = real.generate("abc", max_new_tokens=40, grammar=grammar).generated_text
bound_events = list(real.generate_stream("abc", max_new_tokens=40, grammar=grammar))
grammar = Grammar(type=GrammarType.Json, value=json.loads(schema))
as_json = real.generate("abc", max_new_tokens=80, grammar=grammar).generated_text
print(json.dumps({
    "text": whole.generated_text,
    "reason": whole.details.finish_reason.value,
    "num_tokens": whole.details.generated_tokens,
    "num_prefill": len(whole.details.prefill),
    "tops": [len(top) for top in whole.details.top_tokens],
    "streamed": "".join(event.token.text for event in events if not event.token.special),
    "last": events[-1].generated_text,
    "stopped": [stopped.generated_text, stopped.details.finish_reason.value],
    "error": error,
    "bound": [bound, bound_events[-1].generated_text],
    "json": json.loads(as_json),
}))
"""


@pytest.fixture(scope="session")
def text_generation_python() -> Path:
    """An interpreter with the client. Its pins do not go with ours."""
    try:
        TEXT_GENERATION.set_up(lambda _stage, _fraction: None)
    except PeerError as error:
        pytest.skip(f"the client could not be installed: {error}")
    return TEXT_GENERATION.python


def test_text_generation_client(
    text_generation_python: Path, scripted: RunningServer, real: RunningServer
) -> None:
    arguments = (scripted.url, PROMPT, real.url, REGEX, json.dumps(SCHEMA))
    done = subprocess.run(
        [str(text_generation_python), "-c", _SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("num_prefill") > 2
    assert "`max_new_tokens` must be <=" in found.pop("error")
    whole, streamed = found.pop("bound")
    assert re.fullmatch(REGEX, whole) and streamed == whole
    jsonschema.validate(found.pop("json"), SCHEMA)
    num_tokens = found["num_tokens"]
    assert found == {
        "text": ANSWER,
        "reason": "eos_token",
        "num_tokens": num_tokens,
        "tops": [2] * num_tokens,
        "streamed": ANSWER,
        "last": ANSWER,
        "stopped": ["hello w", "stop_sequence"],
    }
    scripted.wait_idle()
    real.wait_idle()
