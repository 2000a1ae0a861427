"""Steps in which nothing is decided: every running sequence decodes, nobody enters, ends or is preempted.

A simulation spends most of its steps so. What such steps come to is known beforehand, so they can be taken all
at once, with the same counts after them as if they had been taken one by one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from octavo.core.admission import Demand, Limits, shortage_of, tokens_left_for
from octavo.core.block_tables import BlockTables
from octavo.core.request import Request
from octavo.core.sequence import RankedSequences, Sequence
from octavo.core.step import SeqId


class SteadyDecode:
    """The coming steps of these sequences, as far as none of them ends and all of them get their blocks.

    Valid until anything else is done with the scheduler that gave it.
    """

    def __init__(self, sequences: list[Sequence], max_steps: int, tables: BlockTables) -> None:
        """`max_steps`: after so many one of the sequences might end."""
        self._sequences = sequences
        self._tables = tables
        self._starts = Counter(s.num_computed % tables.block_size for s in sequences)
        self.num_steps = self._steps_with_blocks(max_steps)
        """How many steps there are; may be 0."""

    @property
    def lengths(self) -> list[tuple[SeqId, int]]:
        """Sequences, and the tokens that each has computed before the first of these steps."""
        return [(sequence.seq_id, sequence.num_computed) for sequence in self._sequences]

    def blocks_taken(self, step: int) -> int:
        """Blocks that step number `step`, from 0, takes from the pool."""
        return self._starts[-step % self._tables.block_size]

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._tables.block_size

    def skip(self, count: int, token_id: int) -> None:
        """Take the first `count` steps: each sequence gets `token_id`, no end token, that often, and blocks for it."""
        assert count <= self.num_steps, f"{count} of {self.num_steps} steps"
        token_ids = [token_id] * count
        for sequence in self._sequences:
            stop = sequence.num_computed + count
            copy = self._tables.grow(sequence.seq_id, stop)
            assert copy is None, f"sequence {sequence.seq_id} writes to a shared block"
            sequence.num_computed = stop
            sequence.token_ids.extend(token_ids)

    def _steps_with_blocks(self, max_steps: int) -> int:
        left = self._tables.num_available
        for step in range(max_steps):
            left -= self.blocks_taken(step)
            if left < 0:
                return step
        return max(0, max_steps)


def find_steady(
    running: RankedSequences,
    waiting: RankedSequences,
    requests: Mapping[str, Request],
    tables: BlockTables,
    limits: Limits,
) -> SteadyDecode | None:
    """The coming steps, if all that run only decode, and the first that waits cannot enter.

    It then waits as long as they only decode: each step leaves no more blocks than the last.
    """
    if not _all_decode(running, tables):
        return None
    if waiting and _can_enter(waiting[0], running, tables, limits):
        return None
    left = (requests[s.request_id].num_tokens_left(s) for s in running)
    return SteadyDecode(list(running), min(left, default=1) - 1, tables)


def _can_enter(
    head: Sequence, running: RankedSequences, tables: BlockTables, limits: Limits
) -> bool:
    num_tokens = tokens_left_for(head, running, Demand.of(running), limits)
    return num_tokens > 0 and max(shortage_of(head, running, tables, limits)) <= 0


def _all_decode(sequences: Iterable[Sequence], tables: BlockTables) -> bool:
    """Whether each of them computes one token that it has generated, into a block of its own."""
    for sequence in sequences:
        if sequence.num_pending != 1 or sequence.num_outputs == 0:
            return False
        if sequence.num_computed % tables.block_size:
            last = tables.blocks(sequence.seq_id)[-1]
            if tables.ref_count(last) > 1:
                return False
    return True
