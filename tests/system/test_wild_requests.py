"""Random requests with every known field and wild values: answered or refused, never an error of the server's own.

Some clients leave before their answer. Afterwards nothing runs, and a plain request gets the answer that it got before.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.config import Backend, SchedulingPolicy
from octavo.server.openai.known_fields import CHAT_FIELDS, COMPLETION_FIELDS
from octavo.server.openai.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)
from support.answers import CHAT, COMPLETIONS
from support.server_process import MODEL_NAME, RunningServer, running_server, tiny_config
from support.sse import parse_events

WILD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 0.5, -0.0, 5.0, 1e-300, 1e300, 260, 259),
    *(2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30),
    *("", "a", "\0", "é世🎉", "x" * 3000, "0", "NaN", "\u2028", "<|turn|>", "<eos>"),
    *([], [0], [1, 2, 3], ["a"], ["", ""], [None], [[]], [[1], [2]], [[[[[]]]]], [1e300], [True]),
    *({}, {"a": 1}, {"1": 1}, {"1": None}, {"260": 1}, {"5": 100}, {"x": {"y": [{"z": None}]}}),
    *({"type": "text"}, {"type": "json_object"}, {"include_usage": True}),
]
TAME: dict[str, list[Any]] = {
    "prompt": ["Hello", "a" * 100, [5, 6, 7], [[5], [6, 7]], ["a", "b"], "\0", "世"],
    "messages": [
        [{"role": "user", "content": "hi"}],
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
        ],
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Sure"}],
        [{"role": "tool", "content": "r", "tool_call_id": "1"}],
    ],
    "tokens": [[5, 6, 7], []],
    "model": [MODEL_NAME],
    "temperature": [0, 0.5, 1, 100],
    "top_p": [0.1, 1],
    "top_k": [0, -1, 5],
    "n": [1, 2, 4],
    "max_tokens": [1, 5, 30],
    "stop": ["a", ["e", "bc"], ["<|turn|>"]],
    "stop_token_ids": [[2], [70, 71]],
    "logit_bias": [{"70": 5}, {"2": -100}],
    "allowed_token_ids": [[70], list(range(4, 100))],
    "bad_words": [["ab"], ["a b", " "]],
    "logprobs": [0, 5, True],
    "prompt_logprobs": [0, 5],
    "stream": [True, True, False],
    "stream_options": [{"include_usage": True, "continuous_usage_stats": True}],
    "ignore_eos": [True],
    "echo": [True],
    "return_token_ids": [True],
}
"""Values that are likely to be taken, so that requests reach the engine."""
KNOWN = {*CHAT_FIELDS.no_effect, *CHAT_FIELDS.refused, *COMPLETION_FIELDS.refused, "surprise"}
ROUTES = (
    (COMPLETIONS, CompletionRequest, "prompt"),
    (CHAT, ChatRequest, "messages"),
    (COMPLETIONS, CompletionRequest, "prompt"),
    (CHAT, ChatRequest, "messages"),
    ("/tokenize", TokenizeCompletionRequest, "prompt"),
    ("/tokenize", TokenizeChatRequest, "messages"),
    ("/detokenize", DetokenizeRequest, "tokens"),
)


class Fuzzer:
    """Makes requests, sends them, and checks what comes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.statuses: Counter[int] = Counter()

    def request(self) -> tuple[str, dict[str, Any]]:
        """A route and a body."""
        choose = self.random.choice
        route, model, subject = choose(ROUTES)
        names = sorted({*model.model_fields, *TAME} & set(model.model_fields))
        is_wild = self.random.random() < 0.3
        body: dict[str, Any] = {subject: choose(TAME[subject]), "max_tokens": 5}
        for name in self.random.sample(names, min(len(names), choose((0, 1, 2, 4, 8)))):
            if is_wild or name in TAME:
                body[name] = choose(
                    WILD if is_wild and choose((True, False)) else TAME.get(name, WILD)
                )
        if is_wild and choose((True, False)):
            body[choose(sorted(KNOWN))] = choose(WILD)
        return route, body

    async def send(self, http: httpx.AsyncClient) -> None:
        """One request; every tenth client leaves early."""
        route, body = self.request()
        asking = http.post(route, json=body)
        if self.random.random() < 0.1:
            leaving = asyncio.ensure_future(asking)
            await asyncio.sleep(self.random.random() * 0.05)
            leaving.cancel()
            await asyncio.wait((leaving,))
            return
        response = await asking
        self.statuses[response.status_code] += 1
        self.check(response, f"{route} {json.dumps(body)[:2000]}")

    def check(self, response: httpx.Response, what: str) -> None:
        """Text of one of three kinds: an answer, a whole stream without errors, or a refusal of the usual shape."""
        text = response.content.decode("utf-8")
        if response.status_code != 200:
            expected = (400, 404, 504) if "timeout_s" in what else (400, 404)
            assert response.status_code in expected, f"{what}: {text}"
            error = response.json()["error"]
            assert error["message"] and error["code"] == response.status_code, f"{what}: {text}"
            assert len(text) < 5000, what
        elif response.headers["content-type"].startswith("text/event-stream"):
            assert not [event for event in parse_events(text) if "error" in event], (
                f"{what}: {text}"
            )
        else:
            assert "error" not in json.loads(text), f"{what}: {text}"


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[RunningServer]:
    """A small pool, so that requests wait for each other and are preempted."""
    config = tiny_config(tiny_model, num_blocks=40, max_num_batched_tokens=64, max_num_seqs=16)
    scheduler = replace(config.scheduler, policy=SchedulingPolicy.PRIORITY)
    config = replace(config, scheduler=scheduler, backend=Backend.NATIVE)
    with running_server(config) as running:
        yield running


def run(server: RunningServer, seed: int, count: int) -> None:
    fuzzer = Fuzzer(seed)
    plain = {"prompt": "plain", "max_tokens": 20, "temperature": 0, "ignore_eos": True}

    async def send_all() -> None:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:
            before = (await http.post(COMPLETIONS, json=plain)).json()["choices"]
            at_once = asyncio.Semaphore(32)

            async def send() -> None:
                async with at_once:
                    await fuzzer.send(http)

            await asyncio.gather(*(send() for _ in range(count)))
            assert (await http.post(COMPLETIONS, json=plain)).json()["choices"] == before

    asyncio.run(send_all())
    server.wait_idle()
    assert "Traceback" not in server.log_text()
    assert fuzzer.statuses[200] > count / 5, fuzzer.statuses
    assert fuzzer.statuses[400] > count / 10, fuzzer.statuses


@pytest.mark.parametrize("seed", range(2))
def test_wild_requests(server: RunningServer, seed: int) -> None:
    run(server, seed, 400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_wild_requests(server: RunningServer, seed: int) -> None:
    run(server, seed, 1500)
