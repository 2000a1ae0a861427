"""Faults of sampling and stopping that users of other engines met (known failures, section C)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.config import Backend
from support.answers import COMPLETIONS, complete, greedy_probe, script
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config
from support.sse import read_stream
from support.text_model import write_text_model

PRINTABLE = list(range(4, 98))
A, B = 68, 69
"""Token ids of "a" and "b"."""


def choices_of(http: httpx.Client, **body: Any) -> list[tuple[str, str]]:
    response = http.post(COMPLETIONS, json=body)
    assert response.status_code == 200, response.text
    return [(choice["text"], choice["finish_reason"]) for choice in response.json()["choices"]]


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_r19_choices_with_a_seed_differ_and_none_is_lost(
    real_http: httpx.Client, seed: int
) -> None:
    body: dict[str, Any] = {
        "prompt": "once",
        "n": 4,
        "seed": seed,
        "temperature": 1,
        "max_tokens": 30,
        "allowed_token_ids": PRINTABLE,
        "stop_token_ids": PRINTABLE[::16],
    }
    whole = choices_of(real_http, **body)
    assert len(whole) == 4
    assert len({text for text, _ in whole}) >= 2
    assert choices_of(real_http, **body) == whole
    stream = read_stream(real_http.post(COMPLETIONS, json={**body, "stream": True}))
    assert [(stream.texts[i], *stream.finish_reasons[i]) for i in range(4)] == whole


def test_r19_choices_that_end_at_different_lengths(real_http: httpx.Client) -> None:
    whole = choices_of(
        real_http,
        prompt="once",
        n=16,
        seed=7,
        max_tokens=60,
        allowed_token_ids=PRINTABLE,
        stop_token_ids=PRINTABLE[::8],
    )
    assert len({len(text) for text, _ in whole}) >= 4


def test_r21_penalties_see_the_newest_tokens_and_the_oldest(real_http: httpx.Client) -> None:
    """There is no window: if the oldest or the newest tokens were left out, one would come again too soon."""
    body: dict[str, Any] = {"prompt": [1], "temperature": 0, "return_token_ids": True}

    def drawn(letters: list[int], count: int, **fields: Any) -> list[int]:
        # Raised by 100, all logits are above 0, and a repeated one falls behind all others.
        bias = dict.fromkeys(map(str, letters), 100.0)
        fields |= {"allowed_token_ids": letters, "logit_bias": bias, "max_tokens": count}
        response = real_http.post(COMPLETIONS, json={**body, **fields})
        token_ids: list[int] = response.json()["choices"][0]["token_ids"]
        return token_ids

    letters = PRINTABLE[:40]
    assert sorted(drawn(letters, 40, repetition_penalty=1e6)) == letters
    few = drawn(letters[:4], 80, frequency_penalty=2.0)
    assert all(15 <= few.count(letter) <= 25 for letter in letters[:4])
    window = real_http.post(COMPLETIONS, json={**body, "repeat_last_n": 4})
    assert window.headers["x-octavo-ignored-fields"] == "repeat_last_n"


def forced(token_id: int) -> dict[str, Any]:
    return {"logit_bias": {str(token_id): 100}, "temperature": 0}


def test_r23_min_tokens_hold_against_stop_strings(real_http: httpx.Client) -> None:
    limits = {"min_tokens": 10, "max_tokens": 20}
    answer = complete(real_http, "x", stop=["a"], **forced(A), **limits)
    # The first match that begins after the tenth token: the eleventh.
    assert (answer.text, answer.finish_reason, answer.num_tokens) == ("a" * 10, "stop", 11)
    straddling = complete(real_http, "x", stop=["aa"], **forced(A), **limits)
    assert (straddling.text, straddling.finish_reason) == ("a" * 10, "stop")
    assert straddling.num_tokens == 12  # a match that began before the tenth does not fire late


@pytest.mark.parametrize("token_id", [A, 2])
def test_r23_min_tokens_hold_against_stop_tokens(real_http: httpx.Client, token_id: int) -> None:
    stops = {"stop_token_ids": [token_id]} if token_id == A else {}
    limits = {"min_tokens": 10, "max_tokens": 20}
    answer = complete(real_http, "x", **stops, **forced(token_id), **limits)
    assert (answer.finish_reason, answer.num_tokens) == ("stop", 11)
    assert answer.stop_reason == (A if stops else None)


def test_r23_min_tokens_equal_to_and_above_max_tokens(real_http: httpx.Client) -> None:
    equal = complete(real_http, "x", stop=["a"], min_tokens=10, max_tokens=10, **forced(A))
    assert (equal.finish_reason, equal.num_tokens) == ("length", 10)
    body = {"prompt": "x", "min_tokens": 11, "max_tokens": 10}
    above = real_http.post(COMPLETIONS, json=body)
    assert above.status_code == 400
    assert above.json()["error"]["param"] == "min_tokens"


@pytest.mark.parametrize(
    ("stop", "text"),
    [("Pari", "I see "), ("ari", "I see P"), (" P", "I see"), ("s i", "I see Pari")],
)
@pytest.mark.parametrize("order", ["", "\x04"])
def test_r25_a_stop_string_inside_a_token(
    scripted_http: httpx.Client, stop: str, text: str, order: str
) -> None:
    prompt = script(f"{order}I see Paris in spring")
    answer = complete(scripted_http, prompt, stop=[stop], logprobs=0, return_token_ids=True)
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (text, "stop", stop)
    choice = answer.body["choices"][0]
    assert answer.num_tokens == len(choice["token_ids"]) == len(choice["logprobs"]["tokens"])
    tokens = choice["logprobs"]["tokens"]
    assert tokens[:6] == [*"I see", " Paris"]
    assert answer.num_tokens == (8 if stop == "s i" else 6)


def test_r25_the_stop_string_can_be_included(scripted_http: httpx.Client) -> None:
    answer = complete(
        scripted_http,
        script("I see Paris in spring"),
        stop=["Pari"],
        include_stop_str_in_output=True,
    )
    assert (answer.text, answer.finish_reason) == ("I see Pari", "stop")


@pytest.mark.parametrize(
    "fields",
    [
        *({"temperature": value} for value in (0, 1e-45, 1e-12, 1e-6, 1e-5, 1e-4, 1e-3)),
        *({"temperature": 1, "top_p": value} for value in (1e-8, 1e-4)),
        {"temperature": 1, "min_p": 1},
        {"temperature": 2, "top_k": 1},
        {"temperature": 100, "top_k": 1},
    ],
)
def test_r27_tiny_values_are_greedy(real_http: httpx.Client, fields: dict[str, Any]) -> None:
    common = {"prompt": "tiny", "max_tokens": 12, "allowed_token_ids": PRINTABLE, "seed": 3}
    greedy = choices_of(real_http, **common, temperature=0)
    assert choices_of(real_http, **common, **fields) == greedy


@pytest.fixture(scope="module", params=["auto", "float32", "bfloat16"])
def native_http(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[httpx.Client]:
    """A client of a server that computes with the native kernels in one of the dtypes."""
    config = tiny_config(tiny_model)
    model = replace(config.model, dtype=request.param)
    config = replace(config, model=model, backend=Backend.NATIVE)
    with (
        running_server(config) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client
        server.wait_idle()


def test_r27_tiny_values_are_greedy_in_every_dtype(native_http: httpx.Client) -> None:
    common = {"prompt": "tiny", "max_tokens": 12, "allowed_token_ids": PRINTABLE, "seed": 3}
    greedy = choices_of(native_http, **common, temperature=0)
    for temperature in (1e-45, 1e-12, 1e-6, 1e-5, 1e-4, 1e-3):
        assert choices_of(native_http, **common, temperature=temperature) == greedy
    for fields in ({"top_p": 1e-8}, {"top_p": 1e-4}, {"min_p": 1}, {"top_k": 1}):
        assert choices_of(native_http, **common, temperature=1, **fields) == greedy
    for fields in ({"temperature": 100}, {"top_k": 260}, {"top_k": 2**31}, {"min_p": 0}):
        ((text, _),) = choices_of(native_http, **common, **fields)
        assert len(text) > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 100},
        {"temperature": 2, "top_p": 1},
        {"top_k": 260},
        {"top_k": 261},
        {"top_k": 2**31 - 1},
        {"top_k": 2**31},
        {"top_k": -1},
        {"top_k": 0},
        {"min_p": 0},
    ],
)
def test_r27_wide_values_work(real_http: httpx.Client, fields: dict[str, Any]) -> None:
    assert (
        complete(real_http, "wide", max_tokens=12, seed=1, ignore_eos=True, **fields).num_tokens
        == 12
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1e-9},
        {"top_p": 0},
        {"top_p": 1.0001},
        {"top_p": -1},
        {"min_p": -0.1},
        {"min_p": 2},
        {"top_k": -2},
    ],
)
def test_r27_values_outside_are_refused(real_http: httpx.Client, fields: dict[str, Any]) -> None:
    response = real_http.post(COMPLETIONS, json={"prompt": "x", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == next(iter(fields))


def test_r27_a_mixed_batch_keeps_every_answer(real_http: httpx.Client) -> None:
    common: dict[str, Any] = {"prompt": "mixed", "max_tokens": 24, "seed": 5}
    masked = {str(token_id): -100 for token_id in range(4, 250)}
    bodies = [
        {**common, "temperature": 0, "logit_bias": masked, "min_tokens": 20},
        {**common, "temperature": 1e-6, "top_p": 1e-8},
        {**common, "temperature": 100},
        {**common, "temperature": 0, "allowed_token_ids": [A, B]},
        {**common, "temperature": 1, "min_p": 1},
    ]
    alone = [choices_of(real_http, **body) for body in bodies]
    with ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda body: choices_of(real_http, **body), bodies * 4))
    assert together == alone * 4


def test_r27_a_row_that_is_not_finite_fails_alone(scripted_http: httpx.Client) -> None:
    prompts = [script(f"\x04fine {i}") for i in range(8)]
    prompts.insert(3, script("\x04\x01bad"))
    with ThreadPoolExecutor(len(prompts)) as pool:
        responses = list(
            pool.map(
                lambda prompt: scripted_http.post(COMPLETIONS, json={"prompt": prompt}), prompts
            )
        )
    failed = responses.pop(3)
    assert failed.status_code == 500
    assert "not finite" in failed.json()["error"]["message"]
    texts = [response.json()["choices"][0]["text"] for response in responses]
    assert texts == [f"fine {i}" for i in range(8)]
    greedy_probe(scripted_http)


END_TOKENS = {
    "an int": {"eos_token_id": 2},
    "a list": {"eos_token_id": [3, 2]},
    "missing": {},
}


@pytest.fixture(scope="module", params=END_TOKENS)
def ending(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, bool]]:
    """A server whose model names its end tokens in one of these ways, and whether <|turn|> is one of them."""
    folder = tmp_path_factory.mktemp("ending") / "tiny"
    write_text_model(folder)
    (folder / "generation_config.json").write_text(json.dumps(END_TOKENS[request.param]))
    with (
        running_server(tiny_config(folder), engine_module=SCRIPTED) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        yield client, request.param == "a list"


def test_r29_every_end_token_ends(ending: tuple[httpx.Client, bool]) -> None:
    http, turn_ends = ending
    by_eos = complete(http, script("ab<eos>cd"))
    assert (by_eos.text, by_eos.finish_reason, by_eos.num_tokens) == ("ab", "stop", 3)
    assert by_eos.stop_reason is None
    by_turn = complete(http, script("ab<|turn|>cd"), skip_special_tokens=False)
    expected = ("ab", "stop", 3) if turn_ends else ("ab<|turn|>cd", "stop", 6)
    assert (by_turn.text, by_turn.finish_reason, by_turn.num_tokens) == expected


def test_r29_ignore_eos_ignores_all_of_them(ending: tuple[httpx.Client, bool]) -> None:
    http, _ = ending
    prompt = script("ab<eos>cd<|turn|>ef")
    answer = complete(http, prompt, ignore_eos=True, max_tokens=12)
    assert (answer.text, answer.finish_reason, answer.num_tokens) == ("abcdef", "length", 12)
    own = complete(http, prompt, ignore_eos=True, stop_token_ids=[3], max_tokens=12)
    assert (own.text, own.finish_reason, own.num_tokens, own.stop_reason) == ("abcd", "stop", 6, 3)


def test_r29_min_tokens_mask_all_of_them(ending: tuple[httpx.Client, bool]) -> None:
    http, turn_ends = ending
    answer = complete(http, script("a<eos>b<|turn|>c"), min_tokens=5, skip_special_tokens=False)
    assert answer.text == ("axbxc" if turn_ends else "axb<|turn|>c")
    assert (answer.finish_reason, answer.num_tokens) == ("stop", 6)


def test_a_model_folder_may_lack_generation_config(tmp_path: Path) -> None:
    write_text_model(tmp_path / "tiny")
    (tmp_path / "tiny" / "generation_config.json").unlink()
    with (
        running_server(tiny_config(tmp_path / "tiny"), engine_module=SCRIPTED) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        assert complete(client, script("ab<eos>cd")).text == "ab"


def test_a_choice_that_has_found_its_stop_string_is_not_computed_on(
    real: RunningServer, real_http: httpx.Client
) -> None:
    before = real.metrics()
    body: dict[str, Any] = {
        "prompt": "once",
        "n": 8,
        "seed": 7,
        "max_tokens": 300,
        "allowed_token_ids": PRINTABLE,
        "stop": ["a", "bc"],
    }
    response = real_http.post(COMPLETIONS, json=body).json()
    reasons = [choice["stop_reason"] for choice in response["choices"]]
    assert set(reasons) <= {"a", "bc"}
    lengths = [len(choice["text"]) for choice in response["choices"]]
    assert max(lengths) - min(lengths) > 40, "the case shows nothing"
    real.wait_idle()
    num_drawn = (
        real.metrics()["octavo_generation_tokens_total"] - before["octavo_generation_tokens_total"]
    )
    num_told = response["usage"]["completion_tokens"]
    assert num_told <= num_drawn
    # A few more are on their way when a stop string is found; without an end they would be n times the longest.
    assert num_drawn - num_told < (8 * max(lengths) - num_told) / 2
    assert choices_of(real_http, **body) == [
        (choice["text"], choice["finish_reason"]) for choice in response["choices"]
    ]
