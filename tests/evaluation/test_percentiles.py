import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.evaluation.percentiles import median, percentile, summarize

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(VALUES, st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], percent: float) -> None:
    expected = np.percentile(values, percent)
    assert percentile(sorted(values), percent) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(VALUES, st.sampled_from([1.0, 1000.0]))
def test_a_summary(values: list[float], scale: float) -> None:
    found = summarize(values, scale)
    assert found is not None
    scaled = np.array(values) * scale
    expected = [scaled.mean(), *np.percentile(scaled, (50, 90, 99)), scaled.min(), scaled.max()]
    given_values = [found.mean, found.p50, found.p90, found.p99, found.min, found.max]
    assert given_values == pytest.approx(expected, rel=1e-9, abs=1e-3)


def test_the_median_needs_no_order() -> None:
    assert median([5.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0]) == 2.5


def test_of_nothing_there_is_no_summary() -> None:
    assert summarize([]) is None
