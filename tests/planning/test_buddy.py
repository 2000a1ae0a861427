"""The buddy allocator: pieces never overlap, and what is given back becomes whole again."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.planning.buddy import BuddyAllocator


def test_a_memory_that_is_no_power_of_two_has_as_many_large_pieces_as_fit() -> None:
    memory = BuddyAllocator(15728)  # of the paper: 12 GiB of OPT-13B
    begins = [memory.allocate(2048) for _ in range(8)]
    assert [begin is None for begin in begins] == [False] * 7 + [True]
    assert memory.num_free == 15728 - 7 * 2048


def test_a_piece_is_rounded_up_to_a_power_of_two() -> None:
    memory = BuddyAllocator(64)
    begin = memory.allocate(17)
    assert begin is not None
    assert memory.size_at(begin) == 32
    assert memory.num_free == 32


@settings(deadline=None)
@given(
    size=st.integers(1, 300),
    commands=st.lists(st.tuples(st.booleans(), st.integers(1, 80)), max_size=60),
)
def test_any_history(size: int, commands: list[tuple[bool, int]]) -> None:
    memory = BuddyAllocator(size)
    taken: list[int] = []
    for is_allocation, number in commands:
        if is_allocation:
            begin = memory.allocate(number)
            if begin is not None:
                assert begin % memory.size_at(begin) == 0
                taken.append(begin)
        elif taken:
            memory.free(taken.pop(number % len(taken)))
        pieces = memory.pieces()
        assert sorted(taken) == [begin for begin, _ in pieces]
        assert all(a + n <= b for (a, n), (b, _) in pairwise(pieces))
        assert all(begin + n <= size for begin, n in pieces)
        assert memory.num_free == size - sum(n for _, n in pieces)
    for begin in taken:
        memory.free(begin)
    largest = 1 << (size.bit_length() - 1)
    assert memory.allocate(largest) is not None, "merged again"


def test_an_empty_memory_is_a_defect_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BuddyAllocator(0)
