"""A page costs the books the same in a pool of any size."""

from collections.abc import Callable

import pytest

from octavo.evaluation.page_costs import PageCosts, measure_page_costs

ATTEMPTS = 5
MOST_US = 40
"""Ten times what an idle machine takes for the dearest of them."""


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(ATTEMPTS))


@pytest.mark.parametrize("name", ["take_us", "publish_us", "hit_us", "free_us", "evict_us"])
def test_a_page_costs_no_more_in_a_large_pool(name: str) -> None:
    def ratio() -> float:
        large, small = (cost(name, num_blocks) for num_blocks in (100_000, 13_000))
        return large / small

    def cost(name: str, num_blocks: int) -> float:
        value: float = getattr(measure_page_costs(num_blocks, 10_000, num_prompts=8), name)
        assert value < MOST_US * 10
        return value

    assert best(ratio) < 2


@pytest.mark.long
def test_a_page_costs_no_more_among_a_million() -> None:
    large = measure_page_costs(1_000_000, 10_000)
    small = measure_page_costs(20_000, 10_000)
    for name in ("take_us", "publish_us", "hit_us", "free_us", "evict_us"):
        assert getattr(large, name) < 3 * getattr(small, name), name


def test_a_pool_too_small_is_named() -> None:
    with pytest.raises(ValueError, match="100 blocks do not hold 20 prompts of 1000"):
        measure_page_costs(100, 1000)
    assert isinstance(measure_page_costs(2000, 1000), PageCosts)
