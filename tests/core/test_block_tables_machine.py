"""Any order of allocations, forks and frees, against memory in which every sequence must find its own tokens."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from octavo.core.block_tables import BlockTables, OutOfBlocksError
from octavo.core.step import SeqId


class TablesMachine(RuleBasedStateMachine):
    """Each sequence writes unique tokens into its blocks; `known` remembers which."""

    @initialize(num_blocks=st.integers(1, 40), block_size=st.integers(1, 5))
    def open(self, num_blocks: int, block_size: int) -> None:
        self.tables = BlockTables(num_blocks, block_size)
        self.memory = [[-1] * block_size for _ in range(num_blocks)]
        self.known: dict[SeqId, list[int]] = {}
        self.next_id = 0
        self.next_token = 0

    def new_id(self) -> SeqId:
        self.next_id += 1
        return self.next_id

    def pick(self, data: st.DataObject) -> SeqId:
        return data.draw(st.sampled_from(sorted(self.known)))

    def grow(self, seq_id: SeqId, count: int) -> None:
        """Grow, or be refused exactly when the pool is too small, and then change nothing."""
        tables = self.tables
        tokens = self.known.get(seq_id, [])
        needed = tables.blocks_needed([(seq_id, len(tokens) + count)])
        free_before = tables.num_free
        if needed > free_before:
            held = list(tables.blocks(seq_id)) if seq_id in self.known else None
            with pytest.raises(OutOfBlocksError):
                tables.grow(seq_id, len(tokens) + count)
            assert tables.num_free == free_before
            assert held is None or list(tables.blocks(seq_id)) == held
            return
        copy = tables.grow(seq_id, len(tokens) + count)
        assert tables.num_free == free_before - needed
        if copy is not None:
            self.memory[copy.dst][:] = self.memory[copy.src]
        self.known[seq_id] = tokens
        for _ in range(count):
            block = tables.blocks(seq_id)[len(tokens) // tables.block_size]
            self.memory[block][len(tokens) % tables.block_size] = self.next_token
            tokens.append(self.next_token)
            self.next_token += 1

    @rule(count=st.integers(1, 20))
    def start(self, count: int) -> None:
        self.grow(self.new_id(), count)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), count=st.integers(1, 9))
    def append(self, data: st.DataObject, count: int) -> None:
        self.grow(self.pick(data), count)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent, child = self.pick(data), self.new_id()
        free_before = self.tables.num_free
        self.tables.fork(parent, child)
        assert self.tables.num_free == free_before
        self.known[child] = list(self.known[parent])

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        seq_id = self.pick(data)
        self.tables.free(seq_id)
        del self.known[seq_id]

    @precondition(lambda self: self.known)
    @rule()
    def all_grow_by_one(self) -> None:
        """A step: what all need together is known beforehand, exactly."""
        lengths = [(seq_id, len(tokens) + 1) for seq_id, tokens in self.known.items()]
        needed = self.tables.blocks_needed(lengths)
        if needed <= self.tables.num_free:
            expected = self.tables.num_free - needed
            for seq_id, _ in lengths:
                self.grow(seq_id, 1)
            assert self.tables.num_free == expected

    @invariant()
    def every_sequence_finds_its_tokens(self) -> None:
        size = self.tables.block_size
        for seq_id, tokens in self.known.items():
            blocks = self.tables.blocks(seq_id)
            found = [self.memory[blocks[p // size]][p % size] for p in range(len(tokens))]
            assert found == tokens

    @invariant()
    def the_books_add_up(self) -> None:
        tables = self.tables
        tables.check_integrity()
        held = {block for seq_id in self.known for block in tables.blocks(seq_id)}
        num_entries = sum(len(tables.blocks(seq_id)) for seq_id in self.known)
        assert tables.num_referenced == len(held)
        assert tables.num_free + len(held) == tables.num_blocks
        assert tables.num_saved_by_sharing == num_entries - len(held)


def run_machine(max_examples: int) -> None:
    run_state_machine_as_test(
        TablesMachine,
        settings=settings(max_examples=max_examples, stateful_step_count=40, deadline=None),
    )


def test_any_order_of_operations() -> None:
    run_machine(150)


@pytest.mark.long
def test_any_order_of_operations_long() -> None:
    run_machine(1_500)
