import itertools
import statistics
import time

import pytest

from octavo.errors import ConfigError
from octavo.evaluation.completion_stream import Target
from octavo.evaluation.load import Load, poisson_arrivals, repeated, run_load, warm_up_items
from octavo.evaluation.service import report_of
from octavo.evaluation.throughput import WorkItem
from support.stream_server import (
    BROKEN,
    CUT,
    GOOD,
    PAUSE_S,
    REFUSED,
    SHORT,
    SILENT_USAGE,
    stream_server,
)


def item(kind: int, max_tokens: int = 4, name: str = "x") -> WorkItem:
    return WorkItem(name, (kind, 7, 8), max_tokens)


def test_arrivals_are_poisson_and_seeded() -> None:
    arrivals = poisson_arrivals(5.0, 20_000, seed=3)
    assert arrivals == poisson_arrivals(5.0, 20_000, seed=3)
    assert arrivals != poisson_arrivals(5.0, 20_000, seed=4)
    pauses = [arrivals[0], *(b - a for a, b in itertools.pairwise(arrivals))]
    assert min(pauses) > 0
    # Exponential: mean and deviation are both 1 / rate; the mean of 20,000 is within 3 % but once in 10^5.
    assert statistics.fmean(pauses) == pytest.approx(0.2, rel=0.03)
    assert statistics.pstdev(pauses) == pytest.approx(0.2, rel=0.05)


def test_a_workload_that_begins_anew_has_other_prompts() -> None:
    items = [WorkItem("a", (1, 2, 3), 5), WorkItem("b", (4, 5), 6)]
    found = repeated(items, 5)
    assert [entry.prompt_token_ids for entry in found] == [
        (1, 2, 3), (4, 5), (2, 3, 1), (5, 4), (3, 1, 2),
    ]  # fmt: skip
    assert [entry.max_tokens for entry in found] == [5, 6, 5, 6, 5]
    assert len({entry.id for entry in found}) == 5
    assert repeated(items, 1) == items[:1]


def test_warm_ups_are_short_and_other_prompts() -> None:
    found = warm_up_items([WorkItem(str(i), (1, 2, 3), 100) for i in range(9)])
    assert len(found) == 4
    assert {(entry.prompt_token_ids, entry.max_tokens) for entry in found} == {((3, 2, 1), 16)}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", Target("127.0.0.1", 8000, False, "")),
        ("127.0.0.1:80", Target("127.0.0.1", 80, False, "")),
        ("https://example.org/models/v1/", Target("example.org", 443, True, "/models")),
        ("http://[::1]:5", Target("::1", 5, False, "")),
    ],
)
def test_urls(url: str, expected: Target) -> None:
    assert Target.parse(url) == expected


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        Target.parse(url)


def test_clients_take_turns() -> None:
    with stream_server() as server:
        items = [item(GOOD, 3, str(i)) for i in range(12)]
        stages: list[tuple[str, float]] = []
        load = run_load(
            Target.parse(server.url), "m", items,
            concurrency=3, progress=lambda *stage: stages.append(stage),
        )  # fmt: skip
    assert server.most_open == 3
    assert [answer.error for answer in load.answers] == [None] * 12
    assert all(answer.num_output_tokens == 3 for answer in load.answers)
    assert stages[-1] == ("running", 1.0)
    # Four turns of two pauses each.
    assert load.elapsed_s > 8 * PAUSE_S
    assert 0 < load.generator_cpu_s < load.elapsed_s
    assert server.bodies[0] == {
        "model": "m", "prompt": [GOOD, 7, 8], "max_tokens": 3, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_without_a_number_all_come_at_once() -> None:
    with stream_server() as server:
        run_load(Target.parse(server.url), "m", [item(GOOD, 20, str(i)) for i in range(9)])
    assert server.most_open == 9


def test_arrivals_are_kept_whatever_is_open() -> None:
    with stream_server() as server:
        items = [item(GOOD, 30, str(i)) for i in range(4)]
        begin = time.perf_counter()
        load = run_load(Target.parse(server.url), "m", items, arrivals=[0.0, 0.1, 0.1, 0.2])
    starts = sorted(answer.start - begin for answer in load.answers)
    assert [start - starts[0] for start in starts] == pytest.approx([0.0, 0.1, 0.1, 0.2], abs=1e-6)
    assert server.most_open == 4


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (REFUSED, "status 503"), (CUT, "the stream was cut off"), (BROKEN, "no more"),
        (GOOD, None), (SHORT, None), (SILENT_USAGE, None),
    ],
)  # fmt: skip
def test_what_can_become_of_a_request(kind: int, error: str | None) -> None:
    with stream_server() as server:
        load = run_load(Target.parse(server.url), "m", [item(kind), item(GOOD)])
    found = {answer.item.prompt_token_ids[0]: answer for answer in load.answers}[kind]
    assert (found.error or "").startswith(error or "") and (found.error is None) == (error is None)
    report = report_of(load)
    assert report.num_failed == (error is not None)
    assert report.num_short == (kind == SHORT)
    if error is None:
        assert found.num_output_tokens == (3 if kind == SHORT else 4)


def test_nobody_listens() -> None:
    with stream_server() as server:
        target = Target.parse(server.url)
    load: Load = run_load(target, "m", [item(GOOD)])
    assert "cannot connect" in str(load.answers[0].error)
    assert report_of(load).output_tokens_per_s == 0.0
