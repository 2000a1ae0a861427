"""The official `openai` client as people use it, against a real model."""

import asyncio
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

MODEL = "tiny"
PRINTABLE = list(range(4, 98))
"""Tokens of one ASCII character."""


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


async def chat_text(client: openai.AsyncOpenAI, seed: int, *, streams: bool) -> str:
    """A sampled answer, whole or joined from a stream. The seed fixes it, whatever else runs."""
    options: dict[str, Any] = {
        "model": MODEL,
        "messages": ask(f"question {seed}"),
        "seed": seed,
        "max_tokens": 24,
        "extra_body": {"allowed_token_ids": PRINTABLE},
    }
    if not streams:
        answer = await client.chat.completions.create(**options)
        return answer.choices[0].message.content or ""
    parts = []
    async for chunk in await client.chat.completions.create(**options, stream=True):
        parts.append(chunk.choices[0].delta.content or "")
    return "".join(parts)


def test_models(openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == [MODEL]
    assert openai_client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        openai_client.models.retrieve("other")


def test_chat_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.create(
        model=MODEL, messages=ask("hello"), max_completion_tokens=20, temperature=0
    )
    assert whole.usage is not None
    assert whole.choices[0].finish_reason in ("stop", "length")
    parts, finish, usage = [], None, None
    for chunk in openai_client.chat.completions.create(
        model=MODEL,
        messages=ask("hello"),
        max_completion_tokens=20,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        if chunk.choices:
            parts.append(chunk.choices[0].delta.content or "")
            finish = chunk.choices[0].finish_reason or finish
        usage = chunk.usage or usage
    assert "".join(parts) == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason
    assert usage is not None  # the prompt may have come from the prefix cache the second time
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
        whole.usage.total_tokens,
    )


def test_the_streaming_helper(openai_client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "model": MODEL,
        "messages": ask("hello"),
        "seed": 4,
        "extra_body": {"allowed_token_ids": PRINTABLE, "stop_token_ids": PRINTABLE[::4]},
    }
    with openai_client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    whole = openai_client.chat.completions.create(**options)
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_completions_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    whole = openai_client.completions.create(
        model=MODEL, prompt=["one", "two"], max_tokens=12, temperature=0, logprobs=2
    )
    assert [choice.index for choice in whole.choices] == [0, 1]
    logprobs = whole.choices[0].logprobs
    assert (
        logprobs is not None and logprobs.tokens is not None and logprobs.top_logprobs is not None
    )
    assert len(logprobs.tokens) == len(logprobs.top_logprobs)
    texts = {0: "", 1: ""}
    for chunk in openai_client.completions.create(
        model=MODEL, prompt=["one", "two"], max_tokens=12, temperature=0, stream=True
    ):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {choice.index: choice.text for choice in whole.choices}


def test_chat_logprobs(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model=MODEL, messages=ask("x"), max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy takes the most likely
        assert entry.logprob <= 0


def test_parameters_of_vllm(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model=MODEL,
        messages=ask("x"),
        max_tokens=8,
        extra_body={"top_k": 1, "min_tokens": 8, "repetition_penalty": 1.1, "ignore_eos": True},
    )
    assert answer.usage is not None and answer.usage.completion_tokens == 8


def test_errors_are_the_clients_own(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(model=MODEL, messages=ask("x"), temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="maximum context length is 512 tokens"):
        openai_client.completions.create(model=MODEL, prompt="x" * 600)
    with pytest.raises(openai.NotFoundError):
        openai_client.completions.create(model="gpt-4", prompt="x")
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        openai_client.completions.create(model=MODEL, prompt="x", max_tokens=600, stream=True)


async def test_sixty_four_at_once(async_openai: openai.AsyncOpenAI) -> None:
    seeds = range(32)
    alone = [await chat_text(async_openai, seed, streams=False) for seed in seeds]
    both = await asyncio.gather(
        *(chat_text(async_openai, seed, streams=False) for seed in seeds),
        *(chat_text(async_openai, seed, streams=True) for seed in seeds),
    )
    assert both == alone * 2
    assert len(set(alone)) == 32
    assert all(len(text) == 24 for text in alone)
