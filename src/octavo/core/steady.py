"""Steps in which nothing is decided: every running sequence decodes, nobody enters, ends or is preempted.

A simulation spends most of its steps so. What such steps come to is known beforehand, so they can be taken all
at once, with the same tables, the same cache and the same counts after them as if they had been taken one by one.
"""

from collections.abc import Callable, Iterable, Mapping

from octavo.core.admission import Demand, Limits, fitting, tokens_left_for
from octavo.core.block_tables import BlockTables
from octavo.core.prefix_reuse import PrefixReuse
from octavo.core.request import Request
from octavo.core.sequence import RankedSequences, Sequence
from octavo.core.step import SeqId


class SteadyDecode:
    """The coming steps of these sequences, as far as none of them ends and all of them get their blocks.

    Valid until anything else is done with the scheduler that gave it.
    """

    def __init__(
        self,
        sequences: list[Sequence],
        max_steps: int,
        tables: BlockTables,
        prefixes: PrefixReuse,
    ) -> None:
        """`max_steps`: after so many one of the sequences might end."""
        self._sequences = sequences
        self._tables = tables
        self._prefixes = prefixes
        self._by_start: list[list[Sequence]] = [[] for _ in range(tables.block_size)]
        for sequence in sequences:
            self._by_start[sequence.num_computed % tables.block_size].append(sequence)
        self.num_steps = self._steps_with_blocks(max_steps)
        """How many steps there are; may be 0."""

    @property
    def lengths(self) -> list[tuple[SeqId, int]]:
        """Sequences, and the tokens that each has computed before the first of these steps."""
        return [(sequence.seq_id, sequence.num_computed) for sequence in self._sequences]

    def blocks_taken(self, step: int) -> int:
        """Blocks that step number `step`, from 0, takes from the pool."""
        return len(self._beginning(step))

    @property
    def block_size(self) -> int:
        """B: tokens in a block."""
        return self._tables.block_size

    def skip(self, count: int, token_of: Callable[[SeqId], int]) -> None:
        """Take the first `count` steps: each sequence gets its token that often, and blocks for it.

        The tokens end nothing, and no two sequences of one beginning have the same: else blocks would be shared.
        """
        assert count <= self.num_steps, f"{count} of {self.num_steps} steps"
        starts = {sequence.seq_id: sequence.num_computed for sequence in self._sequences}
        for sequence in self._sequences:
            sequence.token_ids.extend([token_of(sequence.seq_id)] * count)
        # Who takes a block and who fills one, in the order of single steps: so all get the same blocks.
        for step in range(count):
            for sequence in self._beginning(step):
                self._reach(sequence, starts[sequence.seq_id] + step + 1)
            for sequence in self._beginning(step + 1):
                self._reach(sequence, starts[sequence.seq_id] + step + 1)
                self._prefixes.publish(sequence)
        for sequence in self._sequences:
            self._reach(sequence, starts[sequence.seq_id] + count)

    def _reach(self, sequence: Sequence, num_tokens: int) -> None:
        copy = self._tables.grow(sequence.seq_id, num_tokens)
        assert copy is None, f"sequence {sequence.seq_id} writes to a shared block"
        sequence.num_computed = num_tokens

    def _beginning(self, step: int) -> list[Sequence]:
        """Who begins a block in this step, and so has filled one in the step before."""
        return self._by_start[-step % self._tables.block_size]

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
    prefixes: PrefixReuse,
    limits: Limits,
) -> SteadyDecode | None:
    """The coming steps, if all that run only decode, and the first that waits cannot enter.

    It then waits as long as they only decode: each step leaves no more blocks than the last, and no more of its
    beginning in the cache, as long as nobody generates what it asks.
    """
    if not _all_decode(running, tables):
        return None
    if waiting:
        head = waiting[0]
        demand = Demand.of(running)
        if tokens_left_for(head, running, demand, limits) > 0:
            found = prefixes.match(head, requests[head.request_id])
            # None: it waits for what another computes, and those behind it are looked at.
            if found is None or fitting(head, found, demand, running, tables, limits) is not None:
                return None
    left = (requests[s.request_id].num_tokens_left(s) for s in running)
    return SteadyDecode(list(running), min(left, default=1) - 1, tables, prefixes)


def _all_decode(sequences: Iterable[Sequence], tables: BlockTables) -> bool:
    """Whether each of them computes one token that it has generated, into a block of its own."""
    return all(
        sequence.num_pending == 1
        and sequence.num_outputs > 0
        and tables.grows_in_place(sequence.seq_id)
        for sequence in sequences
    )
