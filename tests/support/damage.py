"""Files with some bytes changed."""

from collections.abc import Sequence

from hypothesis import strategies as st


def changes(num_bytes: int, *, most: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """One to `most` bytes among the first `num_bytes`, and their new values."""
    return st.lists(
        st.tuples(st.integers(0, num_bytes - 1), st.integers(0, 255)), min_size=1, max_size=most
    )


def damaged(data: bytes, damage: Sequence[tuple[int, int]]) -> bytes:
    """The bytes with these (position, value) changed."""
    changed = bytearray(data)
    for position, value in damage:
        changed[position] = value
    return bytes(changed)
