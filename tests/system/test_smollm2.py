"""The default model through the official client: what most people do first."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from support.server_process import running_server

pytestmark = pytest.mark.model

QUESTIONS = ["What is the capital of France?", "Name three colours.", "Say hello in Spanish."]


@pytest.fixture(scope="module")
def client(smollm2_path: Path) -> Iterator[openai.OpenAI]:
    """A client of a server with SmolLM2, as `octavo serve` runs it but for a smaller pool."""
    engine = EngineConfig(
        model=ModelConfig(model=str(smollm2_path)), cache=CacheConfig(num_blocks=1024)
    )
    with (
        running_server(engine, served_model_names=("smollm2",)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client
        server.wait_idle()


def options(question: str) -> dict[str, Any]:
    return {
        "model": "smollm2",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 12,
    }


def whole(client: openai.OpenAI, question: str) -> str:
    answer = client.chat.completions.create(**options(question))
    assert answer.choices[0].finish_reason in ("stop", "length")
    return answer.choices[0].message.content or ""


def streamed(client: openai.OpenAI, question: str) -> str:
    chunks = client.chat.completions.create(**options(question), stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_alone_together_whole_and_streamed_are_the_same(client: openai.OpenAI) -> None:
    alone = [whole(client, question) for question in QUESTIONS]
    assert all(alone) and len(set(alone)) == len(alone)
    with ThreadPoolExecutor(6) as pool:
        together = pool.map(whole, [client] * 3, QUESTIONS)
        streams = pool.map(streamed, [client] * 3, QUESTIONS)
        assert list(together) == list(streams) == alone


def test_a_completion_by_text_and_by_ids(client: openai.OpenAI) -> None:
    common: dict[str, Any] = {"model": "smollm2", "temperature": 0, "max_tokens": 6, "logprobs": 2}
    by_text = client.completions.create(prompt="The sun rises in the", **common)
    token_ids = client.completions.create(
        prompt="The sun rises in the", **common, extra_body={"return_token_ids": True}
    )
    ids = (token_ids.choices[0].model_extra or {})["prompt_token_ids"]
    by_ids = client.completions.create(prompt=ids, **common)
    assert by_ids.choices[0].text == by_text.choices[0].text
    assert by_ids.choices[0].logprobs == by_text.choices[0].logprobs
    logprobs = by_text.choices[0].logprobs
    assert logprobs is not None and logprobs.text_offset is not None and logprobs.tokens is not None
    text = by_text.choices[0].text
    starts = [
        text[offset:].startswith(token)
        for offset, token in zip(logprobs.text_offset, logprobs.tokens, strict=True)
    ]
    assert all(starts)
