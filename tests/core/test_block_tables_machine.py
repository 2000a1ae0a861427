"""Any order of all that is done with blocks, against memory in which every sequence must find its own: allocations, forks, hits,
publications, frees, tails that are dropped, pages that are swapped out and in.

A slot of that memory holds all tokens up to its own, as keys and values depend on them: a block that was reused
for another beginning, evicted while it was held, or written while it was shared is found out.
"""

from array import array

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
from octavo.core.prefix_cache import PrefixChain
from octavo.core.step import BlockCopy, SeqId
from octavo.core.swap_space import SwapSpace

tokens_of = st.lists(st.integers(0, 1), min_size=1, max_size=9)
"""Of two kinds, so that beginnings are often equal."""


class Known:
    """What a sequence has computed."""

    def __init__(self, chain: PrefixChain, tokens: list[int]) -> None:
        self.chain = chain
        self.tokens = tokens

    def ids(self) -> "array[int]":
        return array("i", self.tokens)


def chain_up_to(chain: PrefixChain, num_blocks: int) -> PrefixChain:
    """What follows may be other tokens than before."""
    shorter = chain.fork()
    del shorter._keys[num_blocks:]
    return shorter


class TablesMachine(RuleBasedStateMachine):
    """`known` remembers the tokens of each sequence, `memory` what was written where."""

    num_steps = 0
    """In all runs."""

    @initialize(
        num_blocks=st.integers(1, 40),
        block_size=st.integers(1, 5),
        num_swap_slots=st.integers(0, 9),
    )
    def open(self, num_blocks: int, block_size: int, num_swap_slots: int) -> None:
        self.tables = BlockTables(num_blocks, block_size)
        self.memory: list[list[object]] = [[None] * block_size for _ in range(num_blocks)]
        self.known: dict[SeqId, Known] = {}
        self.swap_space = SwapSpace(num_swap_slots)
        self.slots: dict[int, list[object]] = {}
        self.away: dict[SeqId, Known] = {}
        """Those that are swapped out."""
        self.next_id = 0

    def new_id(self) -> SeqId:
        self.next_id += 1
        return self.next_id

    def pick(self, data: st.DataObject) -> SeqId:
        return data.draw(st.sampled_from(sorted(self.known)))

    def write(self, seq_id: SeqId, start: int, copies: list[BlockCopy]) -> None:
        """What a runner does: all copies, then all that is new."""
        contents = [self.memory[copy.src][:] for copy in copies]
        for copy, content in zip(copies, contents, strict=True):
            self.memory[copy.dst] = content
        known, size = self.known[seq_id], self.tables.block_size
        for position in range(start, len(known.tokens)):
            block = self.tables.blocks(seq_id)[position // size]
            self.memory[block][position % size] = self.content(known, position)

    def content(self, known: Known, position: int) -> object:
        return (known.chain._root, *known.tokens[: position + 1])

    def grow(self, seq_id: SeqId, added: list[int]) -> None:
        """Grow, or be refused exactly when there are too few blocks, and then change nothing."""
        tables, known = self.tables, self.known[seq_id]
        start = len(known.tokens)
        needed = tables.blocks_needed([(seq_id, start + len(added))])
        before = (tables.num_free, tables.num_cached, list(tables.blocks(seq_id)))
        available = tables.num_available
        if needed > available:
            with pytest.raises(OutOfBlocksError):
                tables.grow(seq_id, start + len(added))
            assert before == (tables.num_free, tables.num_cached, list(tables.blocks(seq_id)))
            return
        copy = tables.grow(seq_id, start + len(added))
        assert tables.num_available == available - needed
        tables.settle()
        known.tokens += added
        self.write(seq_id, start, [] if copy is None else [copy])

    @rule(
        data=st.data(),
        pieces=st.lists(tokens_of, min_size=1, max_size=3),
        salt=st.sampled_from("ab"),
    )
    def start(self, data: st.DataObject, pieces: list[list[int]], salt: str) -> None:
        """A new sequence takes over what there is, if the rest fits; else nothing changes."""
        tables, tokens = self.tables, [token for piece in pieces for token in piece]
        chain = PrefixChain(tables.cache.root(salt), tables.block_size)
        match = tables.match(chain, array("i", tokens), len(tokens) - 1)
        spare = tables.num_available - tables.blocks_for(len(tokens)) + match.num_live
        if spare < 0:
            return
        if spare == 0:
            match = match.without_tail(tables.block_size)
        available, seq_id = tables.num_available, self.new_id()
        if match.num_tokens:
            tables.attach(seq_id, match)
        # What is appended later may differ from the rest of these tokens, so their keys are not kept.
        chain = PrefixChain(tables.cache.root(salt), tables.block_size)
        chain.num_published = len(match.blocks)
        length = data.draw(st.integers(match.num_tokens + 1, len(tokens)))
        copy = tables.grow(seq_id, length)
        tables.settle()
        assert tables.num_available == available - tables.blocks_for(length) + match.num_live
        self.known[seq_id] = Known(chain, tokens[:length])
        self.write(seq_id, match.num_tokens, [] if copy is None else [copy])

    @precondition(lambda self: self.known)
    @rule(data=st.data(), added=tokens_of)
    def append(self, data: st.DataObject, added: list[int]) -> None:
        self.grow(self.pick(data), added)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        """Never takes a block; a block that was known already comes back."""
        seq_id = self.pick(data)
        known, available = self.known[seq_id], self.tables.num_available
        self.tables.publish(seq_id, known.chain, known.ids(), len(known.tokens))
        assert self.tables.num_available >= available
        assert known.chain.num_published == len(known.tokens) // self.tables.block_size

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        parent, child = self.pick(data), self.new_id()
        available = self.tables.num_available
        self.tables.fork(parent, child)
        assert self.tables.num_available == available
        known = self.known[parent]
        self.known[child] = Known(known.chain.fork(), list(known.tokens))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), leaves_tail=st.booleans())
    def free(self, data: st.DataObject, leaves_tail: bool) -> None:
        seq_id = self.pick(data)
        known = self.known.pop(seq_id)
        if leaves_tail:
            self.tables.publish(seq_id, known.chain, known.ids(), len(known.tokens))
            self.tables.publish_tail(seq_id, known.chain, known.ids(), len(known.tokens))
        self.tables.free(seq_id)

    @precondition(lambda self: self.known)
    @rule(added=st.integers(0, 1))
    def all_grow_by_one(self, added: int) -> None:
        """A step: what all need together is known beforehand, exactly."""
        lengths = [(seq_id, len(known.tokens) + 1) for seq_id, known in self.known.items()]
        needed = self.tables.blocks_needed(lengths)
        if needed <= self.tables.num_available:
            expected = self.tables.num_available - needed
            for seq_id, _ in lengths:
                self.grow(seq_id, [added])
            assert self.tables.num_available == expected

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def drop_tail(self, data: st.DataObject) -> None:
        """A sequence keeps some of its full blocks; what only it had of the others comes free."""
        tables, seq_id = self.tables, self.pick(data)
        known, blocks = self.known[seq_id], tables.blocks(seq_id)
        num_kept = data.draw(st.integers(0, len(blocks) - 1))
        num_private = sum(tables.ref_count(block) == 1 for block in blocks[num_kept:])
        available = tables.num_available
        tables.cut(seq_id, num_kept)
        assert tables.num_available == available + num_private
        known.chain.num_published = min(known.chain.num_published, num_kept)
        del known.tokens[num_kept * tables.block_size :]
        known.chain = chain_up_to(known.chain, num_kept)
        if num_kept == 0:
            del self.known[seq_id]

    @precondition(lambda self: self.known)
    @rule(data=st.data(), count=st.integers(1, 3))
    def swap_out(self, data: st.DataObject, count: int) -> None:
        """Some leave together; what they share is written once."""
        tables = self.tables
        leaving = sorted(self.known)[-count:]
        blocks = {block for seq_id in leaving for block in tables.blocks(seq_id)}
        if len(blocks) > self.swap_space.num_free:
            return
        swaps = self.swap_space.put(
            [(s, tables.blocks(s), len(self.known[s].tokens)) for s in leaving]
        )
        assert {swap.block for swap in swaps} == blocks
        for swap in swaps:
            self.slots[swap.slot] = self.memory[swap.block][:]
        for seq_id in leaving:
            tables.free(seq_id)
            self.away[seq_id] = self.known.pop(seq_id)

    @precondition(lambda self: self.away)
    @rule(data=st.data(), fails=st.booleans())
    def swap_in(self, data: st.DataObject, fails: bool) -> None:
        """All comes back, if there are blocks; a slot that has failed is not used again."""
        seq_id = data.draw(st.sampled_from(sorted(self.away)))
        swapped = self.swap_space.of(seq_id)
        assert swapped.num_tokens == len(self.away[seq_id].tokens)
        if fails:
            self.swap_space.release(seq_id, failed=swapped.slots[-1:])
            del self.away[seq_id]
            return
        if len(swapped.slots) > self.tables.num_available:
            return
        known = self.away.pop(seq_id)
        self.tables.grow(seq_id, swapped.num_tokens)
        for block, slot in zip(self.tables.blocks(seq_id), swapped.slots, strict=True):
            self.memory[block] = self.slots[slot][:]
        self.swap_space.release(seq_id)
        known.chain.num_published = 0
        self.known[seq_id] = known

    @rule()
    def forget_cached(self) -> None:
        num_referenced = self.tables.num_referenced
        self.tables.forget_cached()
        assert (self.tables.num_cached, self.tables.num_referenced) == (0, num_referenced)

    @invariant()
    def count_the_step(self) -> None:
        TablesMachine.num_steps += 1

    @invariant()
    def every_sequence_finds_its_tokens(self) -> None:
        size = self.tables.block_size
        for seq_id, known in self.known.items():
            blocks = self.tables.blocks(seq_id)
            for position in range(len(known.tokens)):
                found = self.memory[blocks[position // size]][position % size]
                assert found == self.content(known, position)

    @invariant()
    def the_books_add_up(self) -> None:
        tables = self.tables
        tables.check_integrity()
        self.swap_space.check_integrity()
        assert self.swap_space.num_sequences == len(self.away)
        held = {block for seq_id in self.known for block in tables.blocks(seq_id)}
        num_entries = sum(len(tables.blocks(seq_id)) for seq_id in self.known)
        assert tables.num_referenced == len(held)
        assert tables.num_free + tables.num_cached + len(held) == tables.num_blocks
        assert tables.num_saved_by_sharing == num_entries - len(held)


def run_machine(num_steps: int) -> None:
    TablesMachine.num_steps = 0
    while TablesMachine.num_steps < num_steps:
        run_state_machine_as_test(
            TablesMachine,
            settings=settings(max_examples=num_steps // 36, stateful_step_count=40, deadline=None),
        )


def test_any_order_of_operations() -> None:
    run_machine(10_000)


@pytest.mark.long
def test_any_order_of_operations_long() -> None:
    run_machine(100_000)
