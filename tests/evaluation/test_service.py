import pytest

from octavo.errors import ConfigError
from octavo.evaluation.completion_stream import Answer
from octavo.evaluation.load import Load
from octavo.evaluation.service import is_good, latencies_of, parse_limits, report_of
from octavo.evaluation.throughput import WorkItem


def answer(start: float, times: list[float], tokens: int, *, wanted: int | None = None) -> Answer:
    item = WorkItem("x", (1, 2), tokens if wanted is None else wanted)
    return Answer(item, start, times, times[-1], tokens)


STEADY = answer(10.0, [10.1, 10.2, 10.3], 3)
SLOW_START = answer(10.0, [10.9, 11.0], 2)
PAUSES = answer(10.0, [10.1, 10.11, 10.51], 5)
SINGLE = answer(10.0, [10.2], 1)
FAILED = Answer(WorkItem("x", (1,), 9), 10.0, [10.5], 10.5, 0, "no")


def test_latencies() -> None:
    found = latencies_of(PAUSES)
    assert found is not None
    assert found.ttft_ms == pytest.approx(100)
    assert found.itl_ms == pytest.approx((10, 400))
    assert found.tpot_ms == pytest.approx(410 / 4)  # by tokens, which are more than pieces of text
    assert found.e2e_ms == pytest.approx(510)
    single = latencies_of(SINGLE)
    assert single is not None
    assert (single.itl_ms, single.tpot_ms) == ((), None)
    assert latencies_of(FAILED) is None


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ("ttft_ms:500", [True, False, True, True]),
        ("itl_ms:150", [True, True, False, True]),
        ("tpot_ms:101", [True, True, False, True]),
        ("e2e_ms:400", [True, False, False, True]),
        ("ttft_ms:500,itl_ms:150", [True, False, False, True]),
    ],
)
def test_goodput_wants_every_limit(limits: str, good: list[bool]) -> None:
    answers = (STEADY, SLOW_START, PAUSES, SINGLE)
    wanted = parse_limits(limits)
    assert [is_good(f, wanted) for a in answers if (f := latencies_of(a))] == good
    report = report_of(Load((*answers, FAILED), 2.0, 0.1), wanted)
    assert report.num_good == sum(good)
    assert report.goodput_requests_per_s == pytest.approx(sum(good) / 2)


def test_a_report_counts_what_succeeded() -> None:
    short = answer(10.0, [10.4], 1, wanted=3)
    report = report_of(Load((STEADY, short, FAILED, FAILED), 2.0, 0.1))
    assert (report.num_requests, report.num_failed, report.num_short) == (4, 2, 1)
    assert report.failures == {"no": 2}
    assert (report.num_output_tokens, report.num_prompt_tokens) == (4, 4)
    assert report.output_tokens_per_s == pytest.approx(2.0)
    assert report.requests_per_s == pytest.approx(1.0)
    assert report.ttft_ms is not None and report.ttft_ms.p50 == pytest.approx(250)
    assert report.num_good is None


def test_where_all_fail_there_are_no_latencies() -> None:
    report = report_of(Load((FAILED,), 0.0, 0.1), {"ttft_ms": 1.0})
    assert report.ttft_ms is report.itl_ms is report.tpot_ms is report.e2e_ms is None
    assert (report.num_good, report.goodput_requests_per_s) == (0, 0.0)


@pytest.mark.parametrize("text", ["", "ttft_ms", "ttft_ms:x", "ttft_ms:0", "ttft_ms:nan", "ttft:5"])
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--goodput takes NAME:MS"):
        parse_limits(text)
