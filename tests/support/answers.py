"""Asks a server for text in both forms, and checks that they agree."""

from dataclasses import dataclass
from typing import Any

import httpx

from support.sse import read_stream

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Answer:
    """The first choice of an answer."""

    text: str
    finish_reason: str
    stop_reason: int | str | None
    num_tokens: int
    body: dict[str, Any]


def script(text: str) -> str:
    """A prompt that makes the scripted engine say `text`."""
    return f"<unk>{text}<unk>"


def complete(http: httpx.Client, prompt: str | list[int], **fields: Any) -> Answer:
    """One completion, asked for whole and as a stream; both must be the same."""
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": 64, **fields}
    return _ask(http, COMPLETIONS, body, lambda choice: choice["text"])


def chat(http: httpx.Client, content: str, **fields: Any) -> Answer:
    """One answer to a user's message, asked for whole and as a stream; both must be the same."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": content}], **fields}
    return _ask(http, CHAT, body, lambda choice: choice["message"]["content"])


def but_for_the_cache(usage: dict[str, Any]) -> dict[str, Any]:
    """What a request used, without what an earlier one with the same beginning had left in the prefix cache."""
    return {**usage, "prompt_tokens_details": None}


def _ask(http: httpx.Client, url: str, body: dict[str, Any], text_of: Any) -> Answer:
    response = http.post(url, json=body)
    assert response.status_code == 200, response.text
    whole: dict[str, Any] = response.json()
    choice = whole["choices"][0]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = read_stream(http.post(url, json={**body, **options}))
    assert stream.texts == {0: text_of(choice)}
    assert stream.finish_reasons == {0: [choice["finish_reason"]]}
    assert stream.choices()[-1]["stop_reason"] == choice["stop_reason"]
    assert stream.usage is not None
    assert but_for_the_cache(stream.usage) == but_for_the_cache(whole["usage"])
    return Answer(
        text_of(choice),
        choice["finish_reason"],
        choice["stop_reason"],
        whole["usage"]["completion_tokens"],
        whole,
    )


def greedy_probe(http: httpx.Client) -> None:
    """A short greedy request whose answer never changes, from the scripted engine."""
    assert complete(http, script("probe")).text == "probe"
