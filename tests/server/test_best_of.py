"""The most likely of more samples than are asked for."""

from collections.abc import AsyncGenerator, Sequence

import httpx

from octavo.engine.messages import TokenLogprob
from octavo.server.best_of import best_of
from octavo.server.generation import ChoiceText, Output, PromptEnd, PromptScores


def text(index: int, *logprobs: float, finish: str | None = None) -> ChoiceText:
    values = [TokenLogprob(5, logprob, 1, []) for logprob in logprobs]
    return ChoiceText(index, f"{index}", [5] * len(values), values, finish, None)


async def stream(outputs: Sequence[Output]) -> AsyncGenerator[Output, None]:
    for output in outputs:
        yield output


async def test_the_best_per_token_come_best_first_when_all_have_ended() -> None:
    scores = PromptScores(0, [])
    outputs: list[Output] = [
        scores,
        text(0, -1.0, -1.0),
        text(1, -0.5),
        text(2, -3.0, finish="stop"),
        text(0, -1.0, finish="length"),
        text(1, -0.7, finish="stop"),
        PromptEnd(0, 4, None),
    ]
    found = [output async for output in best_of(stream(outputs), 2, 3)]
    assert found[0] is scores
    assert [(o.index, o.text) for o in found if isinstance(o, ChoiceText)] == [
        (0, "1"),
        (0, "1"),
        (1, "0"),
        (1, "0"),
    ]
    assert found[-1] == PromptEnd(0, 4, None, num_dropped_tokens=1)


async def test_prompts_are_told_apart_and_equal_samples_keep_their_order() -> None:
    outputs: list[Output] = [
        *(text(index, -1.0, finish="stop") for index in (3, 2, 1, 0)),
        PromptEnd(1, 0, None),
        PromptEnd(0, 0, None),
    ]
    found = [output async for output in best_of(stream(outputs), 1, 2)]
    assert [(o.index, o.text) for o in found if isinstance(o, ChoiceText)] == [(1, "2"), (0, "0")]


def test_over_http_one_choice_for_each_prompt_and_all_tokens_in_the_usage(
    http: httpx.Client,
) -> None:
    body = {"prompt": ["first", "second"], "best_of": 4, "max_tokens": 5, "ignore_eos": True}
    answer = http.post("/v1/completions", json={**body, "seed": 3}).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert all(choice["logprobs"] is None for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 2 * 4 * 5
    every = http.post(
        "/v1/completions", json={**body, "best_of": 4, "n": 4, "logprobs": 0, "seed": 3}
    ).json()
    for prompt_index in range(2):
        samples = every["choices"][4 * prompt_index : 4 * prompt_index + 4]
        best = max(samples, key=lambda sample: sum(sample["logprobs"]["token_logprobs"]))
        assert answer["choices"][prompt_index]["text"] == best["text"]


def test_in_a_chat(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "best_of": 3, "n": 2, "max_tokens": 4}
    answer = http.post("/v1/chat/completions", json={**body, "ignore_eos": True}).json()
    assert len(answer["choices"]) == 2
    assert answer["usage"]["completion_tokens"] == 12
