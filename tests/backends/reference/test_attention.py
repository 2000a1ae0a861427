"""Paged attention against one dense sum for each query and head."""

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.backends.reference.attention import paged_attention, write_pages

Array = NDArray[np.float64]


def dense(q: Array, k: Array, v: Array, scale: float, window: int | None) -> Array:
    """One query at the end of its keys: [D], [c, D], [c, D] -> [D]"""
    k, v = (k, v) if window is None else (k[-window:], v[-window:])
    weights = np.exp(k @ q * scale)
    mean: Array = weights @ v / weights.sum()
    return mean


@pytest.mark.parametrize("window", [None, 1, 5, 24])
@pytest.mark.parametrize(("start", "num_queries"), [(0, 1), (0, 40), (17, 1), (30, 11), (15, 2)])
def test_against_the_dense_sum(window: int | None, start: int, num_queries: int) -> None:
    random = np.random.default_rng(start)
    num_heads, num_kv_heads, head_dim, block_size, num_blocks = 6, 2, 8, 8, 20
    length = start + num_queries
    keys, values = random.normal(size=(2, length, num_kv_heads, head_dim))
    queries = random.normal(size=(num_queries, num_heads, head_dim))
    table = random.permutation(num_blocks)[: -(-length // block_size)]
    slots = table[np.arange(length) // block_size] * block_size + np.arange(length) % block_size
    # What nobody may read is not a number.
    key_pages, value_pages = np.full((2, num_blocks, block_size, num_kv_heads, head_dim), np.nan)
    write_pages(key_pages, keys, slots)
    write_pages(value_pages, values, slots)
    if window is not None:
        unseen = max(0, start - window + 1) // block_size
        table[:unseen] = num_blocks + 99  # blocks behind the window may be gone
    outputs = paged_attention(
        queries, key_pages, value_pages, table, start, scale=0.3, window=window
    )
    for i in range(num_queries):
        for head in range(num_heads):
            seen = slice(0, start + i + 1), head // 3
            expected = dense(queries[i, head], keys[seen], values[seen], 0.3, window)
            np.testing.assert_allclose(outputs[i, head], expected, rtol=1e-12)


def test_long_prompts_are_cut_without_a_seam() -> None:
    random = np.random.default_rng(1)
    pages = random.normal(size=(2, 40, 16, 1, 4)).astype(np.float32)
    queries = random.normal(size=(600, 2, 4)).astype(np.float32)
    table = random.permutation(40)[:38]
    whole = paged_attention(queries, pages[0], pages[1], table, 0, scale=0.5, window=None)
    for i in (0, 255, 256, 257, 511, 512, 599):
        one = paged_attention(
            queries[i : i + 1], pages[0], pages[1], table, i, scale=0.5, window=None
        )
        np.testing.assert_allclose(whole[i], one[0], rtol=1e-5)
