"""Faults of the API that users of other engines met (known failures R17, R37, R39, R41; R43: test_template_cases; R45: tests/server)."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest

from support.answers import CHAT, COMPLETIONS, Answer, chat, complete, greedy_probe, script

LIMIT = 4096


@pytest.mark.parametrize("say", [complete, chat])
@pytest.mark.parametrize(
    ("said", "fields", "text", "reason", "num_tokens"),
    [
        ("abcdef", {"max_tokens": 3}, "abc", "length", 3),
        ("abc", {"max_tokens": 1}, "a", "length", 1),
        ("abc", {"max_tokens": 4}, "abc", "stop", 4),  # the end token is the last that may come
        ("abcdef", {"max_tokens": 4, "stop": "cd"}, "ab", "stop", 4),
        ("abcdef", {"max_tokens": 3, "stop": "cd"}, "abc", "length", 3),  # half of it is text
    ],
)
def test_r37_why_an_answer_ends(
    scripted_http: httpx.Client,
    say: Callable[..., Answer],
    said: str,
    fields: dict[str, Any],
    text: str,
    reason: str,
    num_tokens: int,
) -> None:
    answer = say(scripted_http, script(said), **fields)
    assert (answer.text, answer.finish_reason, answer.num_tokens) == (text, reason, num_tokens)
    assert answer.stop_reason == ("cd" if "stop" in fields and reason == "stop" else None)


def test_r37_the_end_of_the_context(scripted_http: httpx.Client) -> None:
    answer = chat(scripted_http, script("\x05abc"))
    assert answer.finish_reason == "length"
    assert answer.body["usage"]["total_tokens"] == LIMIT
    answer = complete(scripted_http, prompt_of(LIMIT - 5), max_tokens=None)
    assert (answer.finish_reason, answer.num_tokens) == ("length", 5)


def prompt_of(length: int) -> list[int]:
    """Token ids of a prompt that makes the engine repeat a letter."""
    order = [1, 0, 197, 68, 0]
    assert length >= len(order)
    return order + [70] * (length - len(order))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("length", "max_tokens", "total"),
    [
        (LIMIT, None, LIMIT + 1),
        (LIMIT, 5, LIMIT + 5),
        (LIMIT + 1, None, LIMIT + 2),
        (10 * LIMIT, None, 10 * LIMIT + 1),
        (LIMIT - 1, 2, LIMIT + 1),
        (10, LIMIT - 9, LIMIT + 1),
        (10, 10 * LIMIT, 10 * LIMIT + 10),
    ],
)
def test_r39_an_overflow_is_a_400_before_the_stream(
    scripted_http: httpx.Client, length: int, max_tokens: int | None, total: int, stream: bool
) -> None:
    body = {"prompt": prompt_of(length), "max_tokens": max_tokens, "stream": stream}
    response = scripted_http.post(COMPLETIONS, json=body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["code"] == 400
    assert error["message"] == (
        f"This model's maximum context length is {LIMIT} tokens. However, you requested {total} "
        f"tokens ({length} in the messages, {total - length} in the completion). "
        "Please reduce the length of the messages or completion."
    )
    greedy_probe(scripted_http)


def test_r39_two_at_once(scripted_http: httpx.Client) -> None:
    def status(stream: bool) -> int:
        body = {"prompt": prompt_of(10 * LIMIT), "max_tokens": 5, "stream": stream}
        return scripted_http.post(COMPLETIONS, json=body).status_code

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(status, (False, True))] == [400, 400]
    greedy_probe(scripted_http)


def test_r39_of_a_chat(scripted_http: httpx.Client) -> None:
    for stream in (False, True):
        body = {"messages": [{"role": "user", "content": "x" * 2 * LIMIT}], "stream": stream}
        refused = scripted_http.post(CHAT, json=body)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(
            f"This model's maximum context length is {LIMIT} tokens. However, you requested "
        )


def test_r39_what_just_fits(scripted_http: httpx.Client) -> None:
    one = complete(scripted_http, prompt_of(LIMIT - 1), max_tokens=None)
    assert (one.text, one.finish_reason) == ("a", "length")
    exact = complete(scripted_http, prompt_of(LIMIT - 20), max_tokens=20)
    assert (exact.num_tokens, exact.finish_reason) == (20, "length")
    assert complete(scripted_http, prompt_of(LIMIT - 5), max_tokens=None).num_tokens == 5


BAD_PROMPTS: list[Any] = [
    ["good", "x" * 5000, "good"],
    ["good", "", "good"],
    [[70, 71], [70] * 5000, [72]],
    [[70, 71], [], [72]],
    [[70, 71], [260], [72]],
    [[70, 71], [-1], [72]],
    [70, 260],
    [],
    "x" * 5000,
]


@pytest.mark.parametrize("prompt", BAD_PROMPTS)
def test_r17_one_bad_prompt_refuses_the_list(scripted_http: httpx.Client, prompt: Any) -> None:
    body = {"prompt": prompt, "n": 2, "seed": 1, "add_special_tokens": False}
    for stream in (False, True):
        before = scripted_http.get("/metrics").text
        response = scripted_http.post(COMPLETIONS, json={**body, "stream": stream})
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "BadRequestError"
        after = scripted_http.get("/metrics").text
        assert engine_steps(before) == engine_steps(after)  # nothing was even begun


def engine_steps(metrics: str) -> float:
    (line,) = (x for x in metrics.splitlines() if x.startswith("octavo_engine_steps_total"))
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize("prompts", [["one", "two", "three"], [[70], [71, 72], [73]]])
def test_r17_good_lists_keep_their_order(scripted_http: httpx.Client, prompts: list[Any]) -> None:
    common: dict[str, Any] = {"n": 2, "seed": 3, "max_tokens": 12}
    together = scripted_http.post(COMPLETIONS, json={"prompt": prompts, **common}).json()
    alone = [
        scripted_http.post(COMPLETIONS, json={"prompt": prompt, **common}).json()
        for prompt in prompts
    ]
    assert [choice["index"] for choice in together["choices"]] == list(range(6))
    expected = [choice["text"] for answer in alone for choice in answer["choices"]]
    assert [choice["text"] for choice in together["choices"]] == expected
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][name] == sum(answer["usage"][name] for answer in alone)


def nested_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


NOT_FOLLOWED: dict[str, Any] = {
    "bad regex": {"type": "string", "pattern": "("},
    "unknown type": {"type": "what"},
    "ref to nowhere": {"$ref": "#/$defs/nowhere"},
    "false": False,
    "no schema": None,
    "depth 200": nested_schema(200),
}
FOLLOWED: dict[str, Any] = {
    "anything": {},
    "recursive": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/n"}}}},
    "huge enum": {"enum": [f"value {i}" for i in range(4000)]},
}  # fmt: skip


def with_form(schema: Any, **fields: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    messages = [{"role": "user", "content": "x"}]
    return {"messages": messages, "response_format": form, "temperature": 0, **fields}


@pytest.mark.parametrize("case", NOT_FOLLOWED)
def test_r41_what_cannot_be_enforced_is_a_400(real_http: httpx.Client, case: str) -> None:
    for stream in (False, True):
        refused = real_http.post(CHAT, json=with_form(NOT_FOLLOWED[case], stream=stream))
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["message"]
    complete(real_http, "probe", temperature=0)


@pytest.mark.parametrize("case", FOLLOWED)
@pytest.mark.parametrize("max_tokens", [60, 2])
def test_r41_an_answer_is_valid_or_cut(real_http: httpx.Client, case: str, max_tokens: int) -> None:
    answer = real_http.post(CHAT, json=with_form(FOLLOWED[case], max_tokens=max_tokens))
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    if choice["finish_reason"] == "stop":
        jsonschema.validate(json.loads(choice["message"]["content"]), FOLLOWED[case])
    else:
        assert choice["finish_reason"] == "length"
    assert max_tokens > 2 or choice["finish_reason"] == "length" or case == "anything"


def test_r41_an_object_of_a_prompt_that_does_not_say_so(real_http: httpx.Client) -> None:
    body = with_form({}, max_tokens=60) | {"response_format": {"type": "json_object"}}
    (choice,) = real_http.post(CHAT, json=body).json()["choices"]
    text = choice["message"]["content"]
    assert text.startswith("{")
    assert choice["finish_reason"] == "length" or isinstance(json.loads(text), dict)
