"""Every published layout is read for what it is, and what is none is named with its line."""

from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.planning.traces import at_rate, fitting, in_rhythm, read_trace
from support.planning import SETUP

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.9799600,110,27
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118.5,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1000, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 3000, "input_length": 600, "output_length": 26, "hash_ids": [46, 99]}
"""
OWN = """{"id": 0, "prompt_token_ids": [5, 6, 7], "max_tokens": 4}
{"prompt_len": 3, "output_len": 9, "arrival_s": 2.5, "n": 2}
"""


def read(tmp_path: Path, text: str) -> list[tuple[float, int, int, int]]:
    path = tmp_path / "trace"
    path.write_text(text)
    return [(round(r.arrival_s, 6), r.prompt_len, r.output_len, r.n) for r in read_trace(path)]


def test_azure(tmp_path: Path) -> None:
    assert read(tmp_path, AZURE) == [(0.0, 4808, 10, 1), (0.052, 3180, 8, 1), (2.0, 110, 27, 1)]


def test_burstgpt_without_the_requests_that_failed(tmp_path: Path) -> None:
    assert read(tmp_path, BURSTGPT) == [(0.0, 472, 18, 1), (113.5, 417, 276, 1)]


def test_mooncake_with_what_prompts_share(tmp_path: Path) -> None:
    assert read(tmp_path, MOONCAKE) == [(0.0, 1000, 52, 1), (3.0, 600, 26, 1)]
    first, second = read_trace(tmp_path / "trace")
    assert first.token_ids[:512] == second.token_ids[:512]
    assert first.token_ids[512:520] != second.token_ids[512:520]


def test_own_lines(tmp_path: Path) -> None:
    assert read(tmp_path, OWN) == [(0.0, 3, 4, 1), (0.0, 3, 9, 2)]
    assert read_trace(tmp_path / "trace")[0].token_ids == array("i", [5, 6, 7])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,2\n", 2),
        (AZURE + "yesterday,1,2\n", 5),
        (BURSTGPT + "1,GPT-4,-3,2,1,log\n", 5),
        (MOONCAKE + '{"timestamp": 0, "input_length": 3}\n', 3),
        (OWN + '{"prompt_token_ids": [], "max_tokens": 4}\n', 3),
        (OWN + "[1]\n", 3),
        ("{\n", 1),
    ],
)
def test_the_line_that_is_wrong_is_named(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=f"trace:{line}: "):
        read(tmp_path, text)


def test_a_file_without_requests(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no requests"):
        read(tmp_path, "")


def test_recorded_answers_are_what_the_next_turn_finds(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(
        '{"prompt_token_ids": [5, 6, 7], "output_token_ids": [8, 9], "arrival_s": 0}\n'
        '{"prompt_token_ids": [5, 6, 7, 8, 9, 3], "max_tokens": 4, "arrival_s": 60}\n'
    )
    first, second = read_trace(tmp_path / "trace")
    assert (first.output_len, first.answer(0)) == (2, array("i", [8, 9]))
    assert second.answer(0) != array("i", [8, 9, 8, 9])
    counts = replace(SETUP, block_size=2, prefix_caching=True).run([first, second]).counts
    assert counts.num_cached_tokens == 4  # the last token of an answer is not computed


def test_the_rhythm_stays(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(BURSTGPT)
    slow = in_rhythm(read_trace(tmp_path / "trace"), 0.5)
    assert [r.arrival_s for r in slow] == [0.0, 2.0]
    (tmp_path / "trace").write_text(OWN.replace(', "arrival_s": 2.5', ""))
    assert in_rhythm(read_trace(tmp_path / "trace"), 2.0)[1].arrival_s > 0


def test_other_arrivals_and_a_shorter_context(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(AZURE)
    requests = at_rate(read_trace(tmp_path / "trace"), 10.0, seed=1)
    assert [r.prompt_len for r in requests] == [4808, 3180, 110]
    assert 0 < requests[0].arrival_s < requests[1].arrival_s
    kept, num_left_out = fitting(requests, 4000)
    assert ([r.prompt_len for r in kept], num_left_out) == ([3180, 110], 1)
