"""BlockTables: growth on demand, forks, copies on write, and refusals that change nothing."""

import pickle

import pytest

from octavo.core.block_pool import IntegrityError
from octavo.core.block_tables import BlockTables, OutOfBlocksError
from octavo.core.step import BlockCopy


def counts(tables: BlockTables) -> tuple[int, int, int, int]:
    """(free, slots used, saved by sharing, copies)"""
    tables.check_integrity()
    return tables.num_free, tables.num_slots_used, tables.num_saved_by_sharing, tables.num_copies


def test_blocks_are_taken_when_tokens_need_them() -> None:
    tables = BlockTables(10, 4)
    assert tables.grow(1, 3) is None
    assert (list(tables.blocks(1)), tables.num_tokens(1)) == ([0], 3)
    tables.grow(1, 4)
    assert list(tables.blocks(1)) == [0]
    tables.grow(1, 5)
    assert list(tables.blocks(1)) == [0, 1]
    tables.grow(1, 17)
    assert list(tables.blocks(1)) == [0, 1, 2, 3, 4]
    assert counts(tables) == (5, 17, 0, 0)
    tables.free(1)
    assert counts(tables) == (10, 0, 0, 0)
    assert tables.num_tokens(1) == 0


def test_who_holds_nothing_frees_nothing() -> None:
    tables = BlockTables(10, 4)
    tables.free(1)
    assert counts(tables) == (10, 0, 0, 0)


def test_a_fork_shares_all_blocks_and_copies_the_last_when_it_is_written() -> None:
    tables = BlockTables(10, 4)
    tables.grow(1, 6)
    tables.fork(1, 2)
    tables.fork(1, 3)
    assert list(tables.blocks(2)) == list(tables.blocks(3)) == [0, 1]
    assert counts(tables) == (8, 6, 4, 0)

    assert tables.grow(2, 7) == BlockCopy(src=1, dst=2)
    assert list(tables.blocks(2)) == [0, 2]
    assert counts(tables) == (7, 6 + 3, 3, 1)

    assert tables.grow(1, 7) == BlockCopy(src=1, dst=3)
    assert tables.grow(3, 7) is None  # the last holder writes in place
    assert list(tables.blocks(3)) == [0, 1]
    assert counts(tables) == (6, 4 + 3 * 3, 2, 2)

    tables.free(1)
    assert counts(tables) == (7, 4 + 2 * 3, 1, 2)
    tables.free(3)
    assert counts(tables) == (8, 7, 0, 2)


def test_a_full_last_block_is_never_copied() -> None:
    tables = BlockTables(10, 4)
    tables.grow(1, 8)
    tables.fork(1, 2)
    assert tables.grow(1, 9) is None
    assert tables.grow(2, 9) is None
    assert (list(tables.blocks(1)), list(tables.blocks(2))) == ([0, 1, 2], [0, 1, 3])
    assert counts(tables) == (6, 10, 2, 0)


def test_no_growth_no_copy() -> None:
    tables = BlockTables(10, 4)
    tables.grow(1, 6)
    tables.fork(1, 2)
    assert tables.grow(2, 6) is None
    assert list(tables.blocks(2)) == [0, 1]


def test_one_growth_may_copy_and_take() -> None:
    tables = BlockTables(10, 4)
    tables.grow(1, 6)
    tables.fork(1, 2)
    assert tables.blocks_needed([(2, 15)]) == 3
    assert tables.grow(2, 15) == BlockCopy(src=1, dst=2)
    assert list(tables.blocks(2)) == [0, 2, 3, 4]
    assert counts(tables) == (5, 6 + 11, 1, 1)


def test_needs_are_exact_for_all_holders_of_a_shared_block_together() -> None:
    tables = BlockTables(10, 4)
    tables.grow(1, 6)
    tables.fork(1, 2)
    tables.fork(1, 3)
    assert tables.blocks_needed([(1, 7), (2, 7)]) == 2
    assert tables.blocks_needed([(1, 7), (2, 7), (3, 7)]) == 2
    assert tables.blocks_needed([(1, 7), (2, 7), (3, 9), (4, 9)]) == 2 + 1 + 3
    for seq_id, num_tokens in ((1, 7), (2, 7), (3, 9), (4, 9)):
        tables.grow(seq_id, num_tokens)
    assert tables.num_free == 10 - 2 - 6


def test_a_refusal_changes_nothing_not_even_the_order() -> None:
    # R03: references taken before the capacity check leak, refusal by refusal.
    tables = BlockTables(10, 4)
    tables.grow(1, 23)
    tables.fork(1, 2)
    tables.grow(3, 12)
    before = pickle.dumps(tables)
    for _ in range(1_000):
        with pytest.raises(OutOfBlocksError, match="sequence 4 needs 5 blocks to hold 20 tokens"):
            tables.grow(4, 20)
        with pytest.raises(OutOfBlocksError, match="sequence 2 needs 2 blocks to hold 25 tokens"):
            tables.grow(2, 25)  # one to copy, one to take
    assert pickle.dumps(tables) == before
    tables.free(3)
    assert tables.grow(2, 25) == BlockCopy(src=5, dst=9)
    tables.check_integrity()


def test_tables_do_not_shrink_and_are_not_forked_twice() -> None:
    tables = BlockTables(10, 4)
    tables.grow(1, 6)
    tables.fork(1, 2)
    with pytest.raises(AssertionError, match="5 is less than 6"):
        tables.grow(1, 5)
    with pytest.raises(AssertionError, match="sequence 2 has a table already"):
        tables.fork(1, 2)


@pytest.mark.parametrize("block_size", [0, -3])
def test_a_block_has_slots(block_size: int) -> None:
    with pytest.raises(ValueError, match=f"block_size must be at least 1; given: {block_size}"):
        BlockTables(10, block_size)


def test_broken_books_are_found() -> None:
    def broken(tables: BlockTables) -> str:
        with pytest.raises(IntegrityError) as raised:
            tables.check_integrity()
        return str(raised.value)

    def filled() -> BlockTables:
        tables = BlockTables(10, 4)
        tables.grow(1, 6)
        return tables

    cut = filled()
    cut.blocks(1).pop()
    assert broken(cut) == "sequence 1: 1 blocks, 6 tokens"

    unshared = filled()
    unshared.fork(1, 2)
    unshared._pool.release((0,))
    assert broken(unshared) == "block 0: 2 tables, 1 references"

    miscounted = filled()
    miscounted._num_slots_used += 1
    assert broken(miscounted) == "(referenced, entries, slots used) are (2, 2, 6), booked (2, 2, 7)"

    uneven = filled()
    uneven.fork(1, 2)
    uneven._tables[2].num_tokens = 7
    assert broken(uneven) == "block 1 is shared at different lengths"


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("grown", [5, 6, 8, 20])
def test_shrinking_undoes_the_end_of_a_growth(block_size: int, grown: int) -> None:
    tables, plain = (BlockTables(40, block_size) for _ in range(2))
    for one in (tables, plain):
        one.grow(0, 5)
        one.grow(1, 2)
    before = tables.blocks(0)
    tables.grow(0, grown)
    kept = tables.blocks(0)
    tables.shrink(0, 5)
    tables.check_integrity()
    assert tables.blocks(0) == before
    assert len(kept) == tables.blocks_for(
        grown
    )  # who still holds the longer table reads what it was
    for name in ("num_free", "num_referenced", "num_slots_used", "num_saved_by_sharing"):
        assert getattr(tables, name) == getattr(plain, name)
    with pytest.raises(AssertionError, match="6 is more than 5"):
        tables.shrink(0, 6)


def test_shrinking_keeps_the_copy_of_a_shared_block() -> None:
    tables = BlockTables(10, 4)
    tables.grow(0, 6)
    tables.fork(0, 1)
    shared = tables.blocks(0)
    assert tables.grow(1, 12) is not None
    tables.shrink(1, 7)
    tables.check_integrity()
    assert tables.blocks(0) == shared
    assert tables.blocks(1)[:1] == shared[:1] and tables.blocks(1)[1] != shared[1]
    assert (tables.num_slots_used, tables.num_referenced) == (6 + 3, 3)
