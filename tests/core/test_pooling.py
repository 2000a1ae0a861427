"""The vector of a prompt, put together from chunks."""

from array import array

import pytest

from octavo.core.pooling import PooledPrompt, Pooling
from octavo.core.request import Request, StopRule
from octavo.core.sampling_params import SamplingParams


def vector(*values: float) -> "array[float]":
    return array("d", values)


def test_a_mean_is_over_all_tokens_whatever_the_chunks() -> None:
    pooled = PooledPrompt(Pooling.MEAN, 5)
    assert pooled.num_wanted(0, 3) == 3
    pooled.take(vector(3, 6), 3, 3)
    assert pooled.num_wanted(3, 5) == 2
    pooled.take(vector(7, 4), 2, 5)
    assert list(pooled.vector()) == [2, 2]


def test_what_is_computed_again_is_not_counted_again() -> None:
    pooled = PooledPrompt(Pooling.MEAN, 5)
    pooled.take(vector(3, 6), 3, 3)
    assert pooled.num_wanted(0, 3) == 0  # after a preemption
    assert pooled.num_wanted(3, 5) == 2


@pytest.mark.parametrize("pooling", [Pooling.LAST, Pooling.MODEL])
def test_the_last_state_is_taken_at_the_end(pooling: Pooling) -> None:
    pooled = PooledPrompt(pooling, 5)
    assert [pooled.num_wanted(0, 3), pooled.num_wanted(3, 5), pooled.num_wanted(4, 5)] == [0, 1, 1]
    pooled.take(vector(1, 2), 1, 5)
    assert list(pooled.vector()) == [1, 2]


@pytest.mark.parametrize(("pooling", "reusable"), [(None, 7), (Pooling.LAST, 7), (Pooling.MEAN, 0)])
def test_only_a_mean_needs_what_is_cached(pooling: Pooling | None, reusable: int) -> None:
    request = Request("r", array("i", range(8)), SamplingParams(max_tokens=1), 0, pooling=pooling)
    rule = StopRule.of(request.params, frozenset(), max_tokens=1)
    request.open(0, 0, 0, rule)
    (sequence,) = request.sequences
    assert request.reusable_len(sequence) == reusable
    if request.pooled is not None and pooling is Pooling.MEAN:
        request.pooled.take(vector(1), 3, 3)
        assert request.reusable_len(sequence) == 3
        assert request.chunk_len(sequence, 100) == 3  # up to where the mean goes on
