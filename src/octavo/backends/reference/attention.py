"""Attention over keys and values that lie scattered in the blocks of a pool."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.reference.layers import Array

_QUERIES_AT_ONCE = 256
"""Bounds the score matrix of a long prompt."""


def write_pages(pages: Array, new: Array, slots: NDArray[np.int64]) -> None:
    """Store new keys or values, [T, K, D], at their slots, [T], of the pool's pages, [N, B, K, D].

    Slot s is place s % B of block s // B.
    """
    num_blocks, block_size = pages.shape[:2]
    pages.reshape(num_blocks * block_size, *pages.shape[2:])[slots] = new


def paged_attention(
    queries: Array,
    key_pages: Array,
    value_pages: Array,
    block_table: NDArray[np.int64],
    start: int,
    *,
    scale: float,
    window: int | None,
) -> Array:
    """Attention of the tokens at positions start .. start + n - 1 of one sequence. [n, H, D] -> [n, H, D].

    Position p sees positions p - window + 1 .. p, or 0 .. p without a window. The pages, [N, B, K, D],
    hold all of them; block_table[j] is the block of positions j * B .. j * B + B - 1. Blocks that no
    position sees any more are not read.
    """
    outputs = np.empty_like(queries)
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        chunk = queries[first : first + _QUERIES_AT_ONCE]
        positions = start + first + np.arange(len(chunk))
        oldest = 0 if window is None else max(0, int(positions[0]) - window + 1)
        keys, key_positions = _gather(key_pages, block_table, oldest, int(positions[-1]) + 1)
        values, _ = _gather(value_pages, block_table, oldest, int(positions[-1]) + 1)
        distance = positions[:, None] - key_positions[None, :]
        visible = distance >= 0
        if window is not None:
            visible &= distance < window
        outputs[first : first + len(chunk)] = _attend(chunk, keys, values, visible, scale)
    return outputs


def _gather(
    pages: Array, block_table: NDArray[np.int64], first: int, end: int
) -> tuple[Array, NDArray[Any]]:
    """The rows of positions first .. end - 1, [c, K, D], and these positions, [c]."""
    block_size = pages.shape[1]
    first_block = first // block_size
    blocks = block_table[first_block : -(-end // block_size)]
    rows = pages[blocks].reshape(len(blocks) * block_size, *pages.shape[2:])
    skipped = first_block * block_size
    return rows[first - skipped : end - skipped], np.arange(first, end)


def _attend(
    queries: Array, keys: Array, values: Array, visible: NDArray[np.bool_], scale: float
) -> Array:
    """softmax(scale * q.k) v. Query heads h * H/K .. (h + 1) * H/K - 1 share key head h."""
    n, num_heads, head_dim = queries.shape
    num_kv_heads = keys.shape[1]
    # [K, H/K, n, D] @ [K, 1, D, c] -> [K, H/K, n, c]
    grouped = queries.reshape(n, num_kv_heads, num_heads // num_kv_heads, head_dim).transpose(
        1, 2, 0, 3
    )
    scores = grouped @ keys.transpose(1, 2, 0)[:, None] * queries.dtype.type(scale)
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    outputs = weights @ values.transpose(1, 0, 2)[:, None]
    by_token: Array = outputs.transpose(2, 0, 1, 3).reshape(n, num_heads, head_dim)
    return by_token
