"""Clients of Text Generation Inference: `huggingface_hub`'s, and the older `text-generation` in an environment of its own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import InferenceClient, TextGenerationOutput
from huggingface_hub.errors import OverloadedError, ValidationError

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


_SCRIPT = """
import json, sys
from text_generation import Client
from text_generation.errors import ValidationError
url, prompt = sys.argv[1:]
client = Client(url, timeout=60)
whole = client.generate(prompt, max_new_tokens=40, decoder_input_details=True, top_n_tokens=2)
events = list(client.generate_stream(prompt, max_new_tokens=40))
stopped = client.generate(prompt, max_new_tokens=40, stop_sequences=["o w"])
try:
    client.generate(prompt, max_new_tokens=10**6)
    error = ""
except ValidationError as raised:
    error = str(raised)
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


def test_text_generation_client(text_generation_python: Path, scripted: RunningServer) -> None:
    done = subprocess.run(
        [str(text_generation_python), "-c", _SCRIPT, scripted.url, PROMPT],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("num_prefill") > 2
    assert "`max_new_tokens` must be <=" in found.pop("error")
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
