"""Memory beyond the pool: pages of preempted sequences that were swapped out, and prefixes that are stored for later runs.

Which pages move is decided here, in the core; a runner moves them (`StepPlan.swap_outs`, `saves`, `swap_ins`, `loads`).
A sequence whose pages come back has its blocks at once, but computes nothing in that step: its pages arrive
while the others compute. If one does not arrive, the sequence computes from there on. So a disk that fails costs
time, never an answer.
"""

from array import array
from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from octavo.core.block_pool import IntegrityError
from octavo.core.block_tables import BlockTables, PrefixMatch, Source
from octavo.core.costs import RestoreCosts
from octavo.core.prefix_cache import Key
from octavo.core.sequence import Sequence, SequenceStatus
from octavo.core.step import BlockId, BlockSwap, StepPlan, StoredBlock
from octavo.core.swap_space import SwapSpace

SAVES_PER_STEP = 32
"""Blocks that one step hands over to be stored: as many as a step of 512 tokens fills."""
MOST_UNSAVED = 65_536
"""Blocks that wait to be stored. The oldest are given up: they may still be saved when they are next computed."""


@dataclass(slots=True)
class TierCounts:
    """Totals since the start. Blocks."""

    num_swapped_out: int = 0
    num_swapped_in: int = 0
    num_saved: int = 0
    """Handed over to be stored."""
    num_loaded: int = 0
    """Had from stored prefixes."""
    num_failed: int = 0
    """Could not be had back, and were computed again."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A sequence that waits for its pages, from this block of its table on."""

    sequence: Sequence
    first: int
    sources: tuple[Source, ...]
    blocks: "array[int]"
    """That they come to: one for each source."""


class Tiers:
    """What each sequence has outside the pool, and what is on its way in either direction."""

    def __init__(
        self,
        tables: BlockTables,
        costs: RestoreCosts | None = None,
        *,
        num_swap_slots: int = 0,
        stored: Container[Key] | None = None,
    ) -> None:
        """`stored` tells which keys can be loaded; None: nothing is stored. `costs`: None as long as nobody measures."""
        self._tables = tables
        self.costs = RestoreCosts() if costs is None else costs
        self.swap_space = SwapSpace(num_swap_slots)
        self.counts = TierCounts()
        self._stored = stored
        self._unsaved: deque[StoredBlock] = deque(maxlen=MOST_UNSAVED)
        self._swap_outs: list[BlockSwap] = []
        self._arrivals: list[_Arrival] = []

    @property
    def stores(self) -> bool:
        """Whether prefixes are stored."""
        return self._stored is not None

    @property
    def is_used(self) -> bool:
        """Whether there is any tier but the pool."""
        return self.stores or self.swap_space.num_slots > 0

    def not_arriving(self, running: Iterable[Sequence]) -> Iterable[Sequence]:
        """Those that can compute in this step."""
        return [s for s in running if not s.is_arriving] if self._arrivals else running

    def extended(self, sequence: Sequence, match: PrefixMatch, limit: int) -> PrefixMatch:
        """A match of the pool with what follows it in another tier, if that is more; of the first `limit` tokens."""
        number, size = len(match.blocks), self._tables.block_size
        swapped = self.swap_space.of(sequence.seq_id)
        stop = min(swapped.num_tokens, limit)
        sources: tuple[Source, ...] = tuple(swapped.slots[number : self._tables.blocks_for(stop)])
        if not sources:
            sources = tuple(self._stored_keys(sequence, number, limit))
            stop = (number + len(sources)) * size
        if stop <= match.num_tokens:
            return match
        start = number * size
        return replace(
            match, num_tokens=start, tail=None, away=sources, num_away_tokens=stop - start
        )

    def bring(self, sequence: Sequence, match: PrefixMatch) -> None:
        """A sequence that holds a match is let in: let it hold what comes from elsewhere too, from the next step on."""
        first = len(match.blocks)
        copy = self._tables.grow(sequence.seq_id, match.num_tokens + match.num_away_tokens)
        assert copy is None, f"sequence {sequence.seq_id} would write to a shared block"
        blocks = self._tables.blocks(sequence.seq_id)[first:]
        sequence.is_arriving = True
        self._arrivals.append(_Arrival(sequence, first, match.away, blocks))

    def swap_out(self, victims: Iterable[Sequence]) -> None:
        """These leave together, and have their pages in the swap space. The caller has checked that there is room."""
        tables = self._tables
        leaving = [
            (victim.seq_id, tables.blocks(victim.seq_id), victim.num_computed)
            for victim in victims
            if victim.num_computed
        ]
        swaps = self.swap_space.put(leaving)
        self._swap_outs += swaps
        self.counts.num_swapped_out += len(swaps)

    def store(self, block: BlockId, key: Key) -> None:
        """Others can find a block from now on: store it with the next steps, as long as it is there."""
        self._unsaved.append(StoredBlock(block, key))

    def added_to(self, plan: StepPlan) -> StepPlan:
        """The plan with the pages that have to move."""
        if not (self._swap_outs or self._arrivals or self._unsaved):
            return plan
        swap_outs, self._swap_outs = tuple(self._swap_outs), []
        swap_ins: list[BlockSwap] = []
        loads: list[StoredBlock] = []
        for arrival in self._arrivals:
            for block, source in zip(arrival.blocks, arrival.sources, strict=True):
                if isinstance(source, int):
                    swap_ins.append(BlockSwap(block, source))
                else:
                    loads.append(StoredBlock(block, source))
        self.counts.num_swapped_in += len(swap_ins)
        self.counts.num_loaded += len(loads)
        saves = self.next_saves(SAVES_PER_STEP)
        return replace(
            plan, swap_outs=swap_outs, saves=saves, swap_ins=tuple(swap_ins), loads=tuple(loads)
        )

    def next_saves(self, most: int) -> tuple[StoredBlock, ...]:
        """Blocks to be stored next, which still hold what they were published for."""
        saves: list[StoredBlock] = []
        while self._unsaved and len(saves) < most:
            save = self._unsaved.popleft()
            is_there = self._tables.cache.find(save.key) == save.block
            if is_there and self._stored is not None and save.key not in self._stored:
                saves.append(save)
        self.counts.num_saved += len(saves)
        return tuple(saves)

    def land(self, failed: frozenset[BlockId], arrived: Callable[[Sequence, int], None]) -> None:
        """The step is done: what was awaited is there, or has failed. Tells `arrived` of each, with the tokens lost."""
        arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            sequence = arrival.sequence
            if sequence.status is SequenceStatus.FINISHED:
                continue
            sequence.is_arriving = False
            slots = [
                source
                for block, source in zip(arrival.blocks, arrival.sources, strict=True)
                if block in failed and isinstance(source, int)
            ]
            self.swap_space.release(sequence.seq_id, failed=slots)
            arrived(sequence, self._cut_at_failure(arrival, failed))

    def forget(self, sequence: Sequence) -> None:
        """A sequence has ended."""
        self.swap_space.release(sequence.seq_id)

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless slots are held by sequences that wait for them. Between steps; O(N)."""
        self.swap_space.check_integrity()
        swapped = [s for s in sequences if self.swap_space.of(s.seq_id).num_tokens]
        for sequence in swapped:
            if sequence.status is not SequenceStatus.WAITING:
                raise IntegrityError(f"sequence {sequence.seq_id} runs and is swapped out")
        if len(swapped) != self.swap_space.num_sequences:
            raise IntegrityError("the swap space holds pages of sequences that have ended")

    def _cut_at_failure(self, arrival: _Arrival, failed: frozenset[BlockId]) -> int:
        """Let a sequence keep what comes before the first block that failed. Returns how many tokens it loses."""
        for number, block in enumerate(arrival.blocks, arrival.first):
            if block in failed:
                sequence, before = arrival.sequence, arrival.sequence.num_computed
                self.counts.num_failed += len(arrival.blocks) - (number - arrival.first)
                self._tables.cut(sequence.seq_id, number)
                sequence.num_computed = number * self._tables.block_size
                return before - sequence.num_computed
        return 0

    def _stored_keys(self, sequence: Sequence, number: int, limit: int) -> Iterable[Key]:
        if self._stored is None or sequence.chain is None:
            return
        size = self._tables.block_size
        while (number + 1) * size <= limit:
            key = sequence.chain.key(number, sequence.token_ids)
            if key not in self._stored:
                return
            yield key
            number += 1
