"""`use_beam_search` over HTTP: n beams, best first, each with its text and its reason to end."""

from typing import Any

import httpx
import pytest

BODY: dict[str, Any] = {"use_beam_search": True, "n": 4, "max_tokens": 6, "temperature": 0}


def test_beams_are_the_choices(http: httpx.Client) -> None:
    body = {**BODY, "prompt": "a beginning", "return_token_ids": True, "ignore_eos": True}
    answer = http.post("/v1/completions", json=body).json()
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 4
    assert {len(choice["token_ids"]) for choice in choices} == {6}
    assert answer["usage"]["completion_tokens"] == 24
    again = http.post("/v1/completions", json=body).json()
    assert again["choices"] == choices
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_prompts_have_beams_of_their_own(http: httpx.Client) -> None:
    one = [
        http.post("/v1/completions", json={**BODY, "prompt": prompt}).json()["choices"]
        for prompt in ("first", "second")
    ]
    both = http.post("/v1/completions", json={**BODY, "prompt": ["first", "second"]}).json()
    texts = [choice["text"] for choice in both["choices"]]
    assert texts == [choice["text"] for choices in one for choice in choices]


def test_in_a_chat(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "hello"}]
    answer = http.post("/v1/chat/completions", json={**BODY, "messages": messages})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["choices"]) == 4


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"n": 1}, "n"),
        ({"n": 17}, "n"),
        ({"stream": True}, "stream"),
        ({"logprobs": 1}, "logprobs"),
        ({"stop": "x"}, "stop"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"temperature": 0.5}, "temperature"),
        ({"early_stopping": "sometimes"}, "early_stopping"),
        ({"length_penalty": 1000}, "length_penalty"),
    ],
)
def test_what_is_no_part_of_the_search_is_refused(
    http: httpx.Client, fields: dict[str, Any], name: str
) -> None:
    response = http.post("/v1/completions", json={**BODY, "prompt": "x", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name
