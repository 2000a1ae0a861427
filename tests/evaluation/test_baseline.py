from typing import Any

import pytest

from octavo.evaluation.baseline import contiguous_shares, experience_here, experience_of
from octavo.evaluation.comparison.peers.peer import PeerError
from octavo.evaluation.throughput import WorkItem

ITEMS = [WorkItem("a", (1,) * 4, 2), WorkItem("b", (1,) * 2, 4), WorkItem("c", (1,) * 8, 3)]
FOUND: dict[str, Any] = {
    "batches": [
        {"start": 10.0, "token_times": [11.0, 11.5, 12.0, 12.5], "cache_bytes": 1600},
        {"start": 12.5, "token_times": [13.0, 13.25, 13.5], "cache_bytes": 1000},
    ]
}  # fmt: skip


def test_what_users_of_static_batches_see() -> None:
    found = experience_of(ITEMS, 2, FOUND)
    assert found.first_token_s == 1.0, "two wait for one second, the last for three"
    assert found.tokens_per_s_per_user == 2.0, "2, 2 and 4 a second"
    assert found.requests_per_min == pytest.approx(60 * 3 / 3.5)
    assert found.cache.peak_bytes == 1600
    assert found.system == "transformers, batches of 2"


def test_what_a_rectangular_cache_holds() -> None:
    # Rows of 4, 5, 6 and 7; `a` ends after two steps, `b` is padded by two.
    assert list(contiguous_shares(ITEMS[:2])) == [6 / 8, 8 / 10, 4 / 12, 5 / 14]
    assert list(contiguous_shares(ITEMS[2:])) == [1.0] * 3


def test_missing_steps_are_no_profile() -> None:
    short = {"batches": [{**FOUND["batches"][0], "token_times": [11.0]}, FOUND["batches"][1]]}
    with pytest.raises(PeerError, match="1 steps came"):
        experience_of(ITEMS, 2, short)


def test_the_same_here() -> None:
    served = {
        "num_failed": 0, "num_short": 0, "failures": {}, "ttft_ms": {"p50": 500.0}, "tpot_ms": {"p50": 20.0},
        "requests_per_s": 2.0,
    }  # fmt: skip
    offline = {"peak_blocks": 10, "block_size": 16, "kv_waste_mean": 0.02}
    found = experience_here(served, offline, bytes_per_token=100)
    assert (found.first_token_s, found.tokens_per_s_per_user, found.requests_per_min) == (0.5, 50.0, 120.0)  # fmt: skip
    assert found.cache.peak_bytes == 10 * 16 * 100
    assert found.cache.token_share == pytest.approx(0.98)
    with pytest.raises(PeerError, match="requests failed here"):
        experience_here({**served, "num_failed": 1}, offline, 100)
