"""JSON schemas at random, followed by the default model in a real server: what ends is valid, most does end, and hardly
any is refused.
"""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx
import jsonschema
import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from support.json_schemas import UNSUPPORTED, Schema, random_schema
from support.server_process import RunningServer, running_server

pytestmark = pytest.mark.model
CHECKED_FORMATS = ("date", "email", "ipv4", "uuid")
"""Those that `jsonschema` checks as the standards have them, without further packages."""
MODEL = "smollm2"
MOST_TOKENS = 512
NUM_AT_ONCE = 64
TIMEOUT_S = 1800.0
"""Far more than a request takes on a busy machine."""
UNKNOWN = sorted({key for schema in UNSUPPORTED for key in schema} - {"type", "items", "then"})


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of the schemas."""

    num_schemas: int
    num_refused: int
    reasons: Counter[str]
    """Why the answers to the others ended."""
    num_tokens: int
    seconds: float

    def __str__(self) -> str:
        finished = self.reasons["stop"] / self.reasons.total()
        return (
            f"{self.num_schemas} schemas: {self.num_refused} refused, {self.reasons.total()} followed; "
            f"{finished:.1%} finished within {MOST_TOKENS} tokens, all of these valid; "
            f"{self.num_tokens} tokens in {self.seconds:.0f} s"
        )


def check(smollm2_path: Path, count: int) -> Figures:
    """Ask for an answer to each of so many schemas, and hold each to its schema."""
    random = Random(7)
    schemas = [random_schema(random) for _ in range(count)]
    engine = EngineConfig(
        model=ModelConfig(model=str(smollm2_path), max_model_len=2048),
        cache=CacheConfig(kv_cache_memory_bytes=2**30),
    )
    with running_server(engine, served_model_names=(MODEL,)) as server:
        start = time.monotonic()
        answers = asyncio.run(ask(server, schemas))
        seconds = time.monotonic() - start
        server.wait_idle()
    followed = [answer for answer in answers if answer.status_code == 200]
    figures = Figures(
        count,
        len(answers) - len(followed),
        Counter(answer.json()["choices"][0]["finish_reason"] for answer in followed),
        sum(answer.json()["usage"]["completion_tokens"] for answer in followed),
        seconds,
    )
    for schema, answer in zip(schemas, answers, strict=True):
        check_answer(schema, answer)
    assert set(figures.reasons) <= {"stop", "length"}, figures
    assert figures.reasons["stop"] >= 0.9 * len(followed), figures
    assert figures.num_refused <= 0.05 * count, figures
    return figures


async def ask(server: RunningServer, schemas: list[Schema]) -> list[httpx.Response]:
    """The answers, NUM_AT_ONCE at a time."""
    limits = httpx.Limits(max_connections=NUM_AT_ONCE)
    async with httpx.AsyncClient(base_url=server.url, limits=limits, timeout=TIMEOUT_S) as client:
        asked = [client.post("/v1/chat/completions", json=request(schema)) for schema in schemas]
        return await asyncio.gather(*asked)


def request(schema: Schema) -> dict[str, Any]:
    # Long prompts would take most of the time: of a long schema the model sees the beginning.
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))[:500]
    question = f"A short example of JSON with this schema: {text}"
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": question}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "example", "schema": schema},
        },
        "temperature": 0.8,
        "seed": 1,
        "frequency_penalty": 0.3,
        "max_tokens": MOST_TOKENS,
    }


def check_answer(schema: Schema, answer: httpx.Response) -> None:
    """A finished answer is valid; a refusal has the place of a keyword that the library lacks."""
    if answer.status_code == 400:
        message = answer.json()["error"]["message"]
        places = [f"#/properties/odd/{name}: Unimplemented" for name in UNKNOWN]
        assert any(place in message for place in places), message
        return
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    if choice["finish_reason"] == "stop":
        checker = jsonschema.FormatChecker(CHECKED_FORMATS)
        value = json.loads(choice["message"]["content"])
        jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)


def test_random_schemas(smollm2_path: Path) -> None:
    check(smollm2_path, 100)


@pytest.mark.long
def test_a_thousand_random_schemas(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = check(smollm2_path, 1000)
    with capsys.disabled():
        print(f"\n{figures}")  # noqa: T201  # the figures of the documentation
