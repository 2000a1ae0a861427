"""Faults of the API that users of other engines met (known failures R17, R37, R39; R45 is in tests/server)."""

from typing import Any

import httpx
import pytest

from support.answers import CHAT, COMPLETIONS, chat, complete, greedy_probe, script

LIMIT = 4096


def test_r37_length(scripted_http: httpx.Client) -> None:
    answer = complete(scripted_http, script("abcdef"), max_tokens=3)
    assert (answer.text, answer.finish_reason, answer.num_tokens) == ("abc", "length", 3)
    answer = chat(scripted_http, script("abcdef"), max_tokens=3)
    assert (answer.text, answer.finish_reason, answer.num_tokens) == ("abc", "length", 3)


def test_r37_one_token(scripted_http: httpx.Client) -> None:
    answer = complete(scripted_http, script("abc"), max_tokens=1)
    assert (answer.text, answer.finish_reason, answer.num_tokens) == ("a", "length", 1)


def test_r37_the_end_token_exactly_at_the_limit(scripted_http: httpx.Client) -> None:
    answer = complete(scripted_http, script("abc"), max_tokens=4)
    assert (answer.text, answer.finish_reason, answer.num_tokens) == ("abc", "stop", 4)


def test_r37_a_stop_string_completed_by_the_last_token(scripted_http: httpx.Client) -> None:
    answer = complete(scripted_http, script("abcdef"), max_tokens=4, stop="cd")
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("ab", "stop", "cd")


def test_r37_half_a_stop_string_at_the_limit_is_text(scripted_http: httpx.Client) -> None:
    answer = complete(scripted_http, script("abcdef"), max_tokens=3, stop="cd")
    assert (answer.text, answer.finish_reason) == ("abc", "length")


def test_r37_the_end_of_the_context(scripted_http: httpx.Client) -> None:
    answer = chat(scripted_http, script("\x05abc"))
    assert answer.finish_reason == "length"
    assert answer.body["usage"]["total_tokens"] == LIMIT


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


def test_r43_an_instruction_is_never_dropped(scripted_http: httpx.Client) -> None:
    def prompt(role: str) -> Any:
        messages = [{"role": role, "content": "be brief"}, {"role": "user", "content": "hi"}]
        body = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
        return scripted_http.post(CHAT, json=body).json()["prompt_token_ids"]

    assert prompt("developer") == prompt("system")
