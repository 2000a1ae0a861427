"""Faults of page managers and schedulers that users of other engines met (known failures R01, R07, R09, R11, R13)."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.config import EngineConfig
from octavo.models.model import load_model
from support.answers import COMPLETIONS
from support.backends import make_runner
from support.server_process import running_server, tiny_config, write_long_text_model

B = 16
MAX_LEN = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny text model."""
    path = tmp_path_factory.mktemp("cases") / "tiny"
    write_long_text_model(path, MAX_LEN)
    return path


@pytest.fixture(scope="module")
def cold(folder: Path) -> Iterator[httpx.Client]:
    """A server that computes each request by itself: one at a time, nothing cached."""
    config = tiny_config(folder, max_num_seqs=1)
    config = replace(config, cache=replace(config.cache, prefix_caching=False))
    with running_server(config) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        yield http


def ask(http: httpx.Client, prompt: list[int], max_tokens: int = 8, **more: Any) -> dict[str, Any]:
    """A greedy completion with its token ids."""
    body = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **more,
    }
    response = http.post(COMPLETIONS, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def ids_of(answer: dict[str, Any]) -> list[int]:
    ids: list[int] = answer["choices"][0]["token_ids"]
    return ids


def tokens(length: int, salt: int) -> list[int]:
    return [5 + (7 * i + 31 * salt) % 190 for i in range(length)]


def cached_tokens(answer: dict[str, Any]) -> int:
    count: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def test_r01_a_prompt_that_the_cache_covers_whole(folder: Path, cold: httpx.Client) -> None:
    with (
        running_server(tiny_config(folder)) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        for salt, length in enumerate((B, 2 * B, 2 * B - 1, 2 * B + 1, 4 * B)):
            prompt = tokens(length, salt)
            expected = ids_of(ask(cold, prompt))
            answers = [ask(http, prompt) for _ in range(3)]
            assert [ids_of(answer) for answer in answers] == [expected] * 3
            hits = [cached_tokens(answer) for answer in answers]
            assert hits[0] == 0 and all(hit <= length - 1 for hit in hits)
            assert hits[2] >= hits[1]
            follow_up = [*prompt, *expected]
            answer = ask(http, follow_up)
            assert ids_of(answer) == ids_of(ask(cold, follow_up))
            assert cached_tokens(answer) >= (length - 1) // B * B
        server.wait_idle()


@pytest.mark.parametrize("caching", [True, False])
def test_r07_repeated_and_interleaved_requests(
    folder: Path, cold: httpx.Client, caching: bool
) -> None:
    base = tokens(60, 3)
    prompts = [base[: 3 * i + 2] for i in range(8)]  # each a beginning of the next
    prompts += [[*base[:32], *tokens(5 + i, i)] for i in range(8)]
    prompts += [[7], tokens(B, 9), tokens(40, 10), tokens(41, 10)]
    assert len(prompts) == 20
    expected = [ids_of(ask(cold, prompt)) for prompt in prompts]
    config = tiny_config(folder, num_blocks=48)
    config = replace(config, cache=replace(config.cache, prefix_caching=caching))
    with (
        running_server(config) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
        ThreadPoolExecutor(8) as pool,
    ):
        order = [*range(20), *reversed(range(20))]
        assert [ids_of(ask(http, prompts[i])) for i in order] == [expected[i] for i in order]
        random.Random(1).shuffle(order)
        answers = pool.map(lambda i: ids_of(ask(http, prompts[i])), order)
        assert list(answers) == [expected[i] for i in order]
        server.wait_idle()


def page_bytes(folder: Path) -> int:
    """Of the pool of such a server."""
    runner = make_runner("reference", load_model(folder), num_blocks=1)
    size = runner.page_bytes
    runner.close()
    return size


@pytest.mark.parametrize("num_swap_pages", [0, 1, 200])
def test_r09_a_group_larger_than_the_pool_ends_and_others_go_on(
    folder: Path, num_swap_pages: int
) -> None:
    config = tiny_config(folder, num_blocks=16, max_num_seqs=8)  # one sequence of the context
    swap_space = num_swap_pages * page_bytes(folder)
    config = replace(config, cache=replace(config.cache, swap_space=swap_space))
    with (
        running_server(config) as server,
        httpx.Client(base_url=server.url, timeout=120) as http,
        ThreadPoolExecutor(4) as pool,
    ):
        too_wide = http.post(COMPLETIONS, json={"prompt": [5], "n": 32, "temperature": 1})
        assert too_wide.status_code == 400 and "at most 8" in too_wide.json()["error"]["message"]
        big = pool.submit(ask, http, tokens(20, 1), 120, n=8, temperature=1, seed=3)
        small = [pool.submit(ask, http, tokens(10 + i, 2 + i), 5) for i in range(6)]
        assert all(len(ids_of(answer.result())) == 5 for answer in small)
        choices = big.result()["choices"]
        assert [len(choice["token_ids"]) for choice in choices] == [120] * 8
        values = server.metrics()
        assert values["octavo_num_preemptions_total"] > 0
        assert values["octavo_kv_swap_blocks"] == num_swap_pages
        server.wait_idle()


def mixed_load(folder: Path, seconds: int) -> None:
    """Beginnings of odd lengths, samples, aborts and a pool too small for all of it; the books are looked at meanwhile."""
    config = tiny_config(folder, num_blocks=40, max_num_seqs=8)
    with running_server(config) as server:

        def client(number: int) -> int:
            draw, count, end = random.Random(number), 0, time.monotonic() + seconds
            with httpx.Client(base_url=server.url, timeout=60) as http:
                while count < 20 or time.monotonic() < end:
                    count += 1
                    prompt = [
                        *tokens(draw.randrange(1, 70), 0),
                        *tokens(draw.randrange(1, 9), count),
                    ]
                    body = {
                        "prompt": prompt,
                        "max_tokens": draw.randrange(1, 30),
                        "n": draw.randrange(1, 4),
                    }
                    if draw.random() < 0.3:  # leaves in the middle
                        with http.stream(
                            "POST", COMPLETIONS, json={**body, "stream": True}
                        ) as stream:
                            next(stream.iter_lines(), None)
                    else:
                        assert http.post(COMPLETIONS, json=body).status_code == 200
                    if count % 10 == 0:
                        values = server.metrics()
                        states = [
                            values[f"octavo_kv_blocks_{s}"]
                            for s in ("free", "cached", "referenced")
                        ]
                        assert sum(states) == values["octavo_kv_blocks"] == 40 and min(states) >= 0
            return count

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(client, range(4)))
        server.wait_idle()


def test_r11_the_books_add_up_under_a_mixed_load(folder: Path) -> None:
    mixed_load(folder, 2)


@pytest.mark.long
def test_r11_the_books_add_up_under_a_mixed_load_long(folder: Path) -> None:
    mixed_load(folder, 120)


def small_pool(folder: Path) -> EngineConfig:
    return tiny_config(folder, num_blocks=8, max_num_seqs=4)


def test_r13_what_can_never_fit_stops_nobody(folder: Path, cold: httpx.Client) -> None:
    slots = 8 * B
    with (
        running_server(small_pool(folder)) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
        ThreadPoolExecutor(6) as pool,
    ):
        short = [tokens(4 + i, i) for i in range(5)]
        expected = [ids_of(ask(cold, prompt, 4)) for prompt in short]
        for length, max_tokens, status in (
            (slots + 1, 1, 400),
            (slots, 1, 400),
            (slots - 1, 1, 200),
            (slots - 3, 50, 400),
            (slots - 3, None, 200),
        ):
            body = {"prompt": tokens(length, 1), "max_tokens": max_tokens, "ignore_eos": True}
            first = pool.submit(http.post, COMPLETIONS, json=body)
            others = [pool.submit(ask, http, prompt, 4) for prompt in short]
            assert [ids_of(other.result()) for other in others] == expected
            response = first.result()
            assert response.status_code == status, (length, max_tokens, response.text)
            if status == 400:
                assert str(slots) in response.json()["error"]["message"]
        server.wait_idle()
