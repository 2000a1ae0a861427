"""Taking blocks from those that run or wait, for others. Who: `victims`; how: `preemption_method`."""

from collections import Counter

from octavo.core.admission import Demand, Limits, blocks_to_catch_up, shortage_of
from octavo.core.block_tables import BlockTables
from octavo.core.open_requests import OpenRequests
from octavo.core.preemption_method import Method, MethodChoice, Preemption
from octavo.core.prefix_reuse import PrefixReuse
from octavo.core.sequence import Sequence, SequenceStatus
from octavo.core.tiers import Tiers
from octavo.core.victims import (
    Cut,
    cuts_of_waiting,
    preemptions_for_growth,
    preemptions_for_priority,
)
from octavo.core.watermark import Watermark


class Preemptor:
    """Makes room in the pool, and keeps count of it."""

    def __init__(
        self,
        open_requests: OpenRequests,
        tables: BlockTables,
        prefixes: PrefixReuse,
        tiers: Tiers,
        limits: Limits,
    ) -> None:
        self._open = open_requests
        self._tables = tables
        self._prefixes = prefixes
        self._tiers = tiers
        self._limits = limits
        self._choice = MethodChoice(tables, tiers)
        self.watermark = Watermark(tables.num_blocks)
        self.counts: Counter[Method] = Counter()
        """Sequences preempted since the start, by method."""

    def num_spare(self, candidate: Sequence) -> int:
        """Blocks that a waiting sequence has to leave free if it is let in; none beside a worse class, which gives way."""
        running = self._open.running
        if not running or running.worst.rank.priority > candidate.rank.priority:
            return 0
        return self.watermark.num_blocks

    def make_room_to_grow(self) -> Demand:
        """Preempt sequences until all that run can compute what they know. Returns what those take."""
        running, tables = self._open.running, self._tables
        self.watermark.step()
        demand = Demand.of(running)
        if demand.most_blocks(tables.block_size) <= tables.num_available:
            return demand
        if self._num_missing() <= 0:
            return demand
        waiting = reversed(self._open.waiting)
        self._cut_waiting(cuts_of_waiting(waiting, tables, self._num_missing())[0])
        num_missing = self._num_missing()
        if num_missing > 0:
            for preemption in preemptions_for_growth(running, tables, num_missing, self._choice):
                self._preempt(preemption)
            self.watermark.rise(len(running))
        return Demand.of(running)

    def make_way(self, candidate: Sequence, demand: Demand) -> bool:
        """Take what a waiting sequence lacks from those of a worse class, and from those who wait behind it.

        False: it has to wait, and nothing has changed.
        """
        running, tables = self._open.running, self._tables
        num_seats = demand.num_seats + candidate.num_seats - self._limits.max_num_seqs
        if num_seats > 0 and running.worst.rank.priority <= candidate.rank.priority:
            return False
        # They may be the ones that it shares blocks with: none count as shared but those that it keeps.
        num_kept = tables.blocks_for(candidate.num_computed)
        shortage = shortage_of(candidate, running, tables, self._limits, num_shared=num_kept)
        if max(shortage) <= 0:
            return False  # it waits for what is to be left free
        shortage = shortage._replace(num_blocks=shortage.num_blocks + self.num_spare(candidate))
        behind = (s for s in reversed(self._open.waiting) if s.rank > candidate.rank)
        cuts, num_cut = cuts_of_waiting(behind, tables, shortage.num_blocks)
        shortage = shortage._replace(num_blocks=shortage.num_blocks - num_cut)
        preemptions = preemptions_for_priority(candidate, shortage, running, tables, self._choice)
        if preemptions is None:
            return False
        self._cut_waiting(cuts)
        for preemption in preemptions:
            self._preempt(preemption)
        return True

    def _num_missing(self) -> int:
        return blocks_to_catch_up(self._open.running, self._tables) - self._tables.num_available

    def _cut_waiting(self, cuts: list[Cut]) -> None:
        for sequence, num_kept in cuts:
            self._keep_first(sequence, num_kept)

    def _preempt(self, preemption: Preemption) -> None:
        for victim in preemption.victims:
            assert not victim.is_arriving, f"sequence {victim.seq_id} waits for its pages"
            self._prefixes.leave(victim)
            self._open.running.remove(victim)
            victim.num_lost = victim.num_computed
        if preemption.method is Method.SWAP:
            self._tiers.swap_out(preemption.victims)
        for victim in preemption.victims:
            self._keep_first(victim, preemption.num_kept)
            victim.status = SequenceStatus.WAITING
            self._open.waiting.add(victim)
            self._open.requests[victim.request_id].num_preemptions += 1
            self.counts[preemption.method] += 1

    def _keep_first(self, sequence: Sequence, num_blocks: int) -> None:
        """A sequence that does not run keeps so many blocks."""
        if num_blocks < self._tables.blocks_for(sequence.num_computed):
            self._tables.cut(sequence.seq_id, num_blocks)
            sequence.num_computed = num_blocks * self._tables.block_size
