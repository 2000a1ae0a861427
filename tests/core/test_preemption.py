"""Who gives up its blocks, for whom, and that it is enough and no more than needed."""

from array import array

from octavo.core.admission import Shortage
from octavo.core.block_tables import BlockTables
from octavo.core.preemption import (
    Relief,
    give_up_blocks,
    victims_of_growth,
    victims_of_priority,
)
from octavo.core.sequence import Rank, RankedSequences, Sequence, SequenceStatus


class Setting:
    """Running sequences over a pool of 20 blocks of 4."""

    def __init__(self) -> None:
        self.tables = BlockTables(20, 4)
        self.running = RankedSequences()

    def run(self, arrival: int, *, known: int, computed: int, priority: int = 0) -> Sequence:
        seq = self._add(arrival, known, computed, priority)
        self.tables.grow(seq.seq_id, computed)
        return seq

    def fork(self, parent: Sequence, arrival: int) -> Sequence:
        seq = self._add(arrival, len(parent.token_ids), parent.num_computed, 0)
        self.tables.fork(parent.seq_id, seq.seq_id)
        return seq

    def _add(self, arrival: int, known: int, computed: int, priority: int) -> Sequence:
        seq = Sequence(
            seq_id=arrival,
            request_id=f"r{arrival}",
            rank=Rank(priority, arrival, 0),
            token_ids=array("i", range(known)),
            num_computed=computed,
            status=SequenceStatus.RUNNING,
        )
        self.running.add(seq)
        return seq


def candidate(priority: int) -> Sequence:
    return Sequence(99, "new", Rank(priority, 99, 0), array("i", [1]))


def test_growth_takes_from_the_worst_rank_and_no_more_than_needed() -> None:
    setting = Setting()
    setting.run(0, known=9, computed=8, priority=1)  # worst priority
    setting.run(1, known=9, computed=8)
    last = setting.run(2, known=9, computed=8)  # latest arrival of the better class
    worst = next(reversed(setting.running))
    assert worst.rank.turn == 0
    # Each holds 2 blocks and is about to take 1.
    assert victims_of_growth(setting.running, setting.tables, 0) == []
    assert victims_of_growth(setting.running, setting.tables, 3) == [worst]
    assert victims_of_growth(setting.running, setting.tables, 4) == [worst, last]


def test_leaving_frees_blocks_that_nobody_else_holds() -> None:
    setting = Setting()
    parent = setting.run(0, known=11, computed=10)  # two full blocks and one with 2 tokens
    children = [setting.fork(parent, arrival) for arrival in (1, 2)]
    relief = Relief(setting.tables)
    assert relief.without(children[0]) == 1  # a copy less
    assert relief.without(children[1]) == 1  # the parent writes in place
    assert relief.without(parent) == 3  # the blocks themselves


def test_relief_is_what_leaving_really_gives() -> None:
    setting = Setting()
    parent = setting.run(0, known=11, computed=10)
    setting.fork(parent, 1)
    setting.run(2, known=25, computed=3)
    setting.run(3, known=9, computed=8)
    tables, relief = setting.tables, Relief(setting.tables)

    def spare() -> int:
        needed = tables.blocks_needed((s.seq_id, len(s.token_ids)) for s in setting.running)
        return tables.num_free - needed

    order = list(reversed(setting.running))
    promised = [relief.without(victim) for victim in order]
    gained = []
    for victim in order:
        before = spare()
        tables.free(victim.seq_id)
        setting.running.remove(victim)
        gained.append(spare() - before)
    assert promised == gained == [3, 7, 1, 3]


def test_priority_takes_only_from_worse_classes() -> None:
    setting = Setting()
    low = setting.run(0, known=9, computed=8, priority=2)
    middle = setting.run(1, known=9, computed=8, priority=1)
    setting.run(2, known=9, computed=8, priority=0)
    tables, running = setting.tables, setting.running
    # A victim's 2 blocks, the 1 it would take, and the 1 it keeps in reserve.
    assert victims_of_priority(candidate(0), Shortage(0, 0), running, tables) == []
    assert victims_of_priority(candidate(0), Shortage(0, 4), running, tables) == [low]
    assert victims_of_priority(candidate(0), Shortage(1, 0), running, tables) == [low]
    assert victims_of_priority(candidate(0), Shortage(0, 5), running, tables) == [low, middle]
    assert victims_of_priority(candidate(0), Shortage(2, 5), running, tables) == [low, middle]
    assert victims_of_priority(candidate(1), Shortage(0, 5), running, tables) is None
    assert victims_of_priority(candidate(0), Shortage(0, 9), running, tables) is None
    assert victims_of_priority(candidate(0), Shortage(3, 0), running, tables) is None
    assert victims_of_priority(candidate(2), Shortage(1, 0), running, tables) is None


def test_a_victim_keeps_its_tokens_and_nothing_else() -> None:
    setting = Setting()
    victim = setting.run(0, known=9, computed=8)
    give_up_blocks(victim, setting.tables)
    assert (len(victim.token_ids), victim.num_computed) == (9, 0)
    assert victim.status is SequenceStatus.WAITING
    assert setting.tables.num_free == 20
