"""Who gives up its blocks, for whom, and that it is enough and no more than needed."""

from array import array

from octavo.core.admission import Shortage
from octavo.core.block_tables import BlockTables
from octavo.core.costs import RestoreCosts
from octavo.core.preemption_method import Method, MethodChoice, Preemption
from octavo.core.relief import Relief
from octavo.core.sequence import Rank, RankedSequences, Sequence, SequenceStatus
from octavo.core.tiers import Tiers
from octavo.core.victims import cuts_of_waiting, preemptions_for_growth, preemptions_for_priority


class Setting:
    """Running sequences over a pool of 20 blocks of 4; each is a request of its own."""

    def __init__(self, costs: RestoreCosts | None = None, num_swap_slots: int = 0) -> None:
        self.tables = BlockTables(20, 4)
        self.running = RankedSequences()
        self.tiers = Tiers(self.tables, costs, num_swap_slots=num_swap_slots)
        self.choice = MethodChoice(self.tables, self.tiers)

    def for_growth(self, num_missing: int) -> list[Preemption]:
        return preemptions_for_growth(self.running, self.tables, num_missing, self.choice)

    def for_priority(self, candidate: Sequence, shortage: Shortage) -> list[Sequence] | None:
        found = preemptions_for_priority(
            candidate, shortage, self.running, self.tables, self.choice
        )
        return None if found is None else [victim for p in found for victim in p.victims]

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
    assert worst.rank.arrival == 0
    # Each holds 2 blocks and is about to take 1.
    assert setting.for_growth(0) == []
    assert [p.victims for p in setting.for_growth(3)] == [(worst,)]
    assert [p.victims for p in setting.for_growth(4)] == [(worst,), (last,)]


def test_leaving_frees_blocks_that_nobody_else_holds() -> None:
    setting = Setting()
    parent = setting.run(0, known=11, computed=10)  # two full blocks and one with 2 tokens
    children = [setting.fork(parent, arrival) for arrival in (1, 2)]
    relief = Relief(setting.tables)
    assert relief.leave([children[0]]) == 1  # a copy less
    assert relief.leave([children[1]]) == 1  # the parent writes in place
    assert relief.leave([parent]) == 3  # the blocks themselves


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
    promised = [relief.leave([victim]) for victim in order]
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
    # A victim's 2 blocks, the 1 it would take, and the 1 it keeps in reserve.
    assert setting.for_priority(candidate(0), Shortage(0, 0)) == []
    assert setting.for_priority(candidate(0), Shortage(0, 4)) == [low]
    assert setting.for_priority(candidate(0), Shortage(1, 0)) == [low]
    assert setting.for_priority(candidate(0), Shortage(0, 5)) == [low, middle]
    assert setting.for_priority(candidate(0), Shortage(2, 5)) == [low, middle]
    assert setting.for_priority(candidate(1), Shortage(0, 5)) is None
    assert setting.for_priority(candidate(0), Shortage(0, 9)) is None
    assert setting.for_priority(candidate(0), Shortage(3, 0)) is None
    assert setting.for_priority(candidate(2), Shortage(1, 0)) is None


def test_the_sequences_of_a_request_leave_together() -> None:
    setting = Setting()
    first = setting.run(0, known=9, computed=8)
    parent = setting.run(1, known=11, computed=10)
    child = setting.fork(parent, 2)
    child.request_id = parent.request_id
    assert [p.victims for p in setting.for_growth(1)] == [(child, parent)]
    setting.running.remove(first)
    # Alone, they leave one by one.
    assert [p.victims for p in setting.for_growth(1)] == [(child,)]


def two_long_ones(costs: RestoreCosts, num_swap_slots: int = 20) -> Setting:
    setting = Setting(costs, num_swap_slots)
    setting.run(0, known=33, computed=32)
    setting.run(1, known=33, computed=32)
    return setting


def test_each_method_is_chosen_where_it_is_cheapest() -> None:
    slow_disk = RestoreCosts(token=0.001, page_out=0.01, page_in=0.01)
    fast_disk = RestoreCosts(token=0.001, page_out=0.0005, page_in=0.0005)
    # Two blocks are missing: one that the victim does not take, and one of its eight.
    (tail,) = two_long_ones(slow_disk).for_growth(2)
    assert (tail.method, tail.num_kept, tail.num_gained) == (Method.DROP_TAIL, 7, 2)
    assert tail.seconds == 0.004
    # All nine are missing.
    (swap,) = two_long_ones(fast_disk).for_growth(9)
    assert (swap.method, swap.num_gained) == (Method.SWAP, 9)
    assert swap.seconds == 0.008
    (again,) = two_long_ones(slow_disk).for_growth(9)
    assert (again.method, again.num_gained) == (Method.RECOMPUTE, 9)
    assert again.seconds == 0.032
    # Without room in the swap space there are two methods left.
    (full,) = two_long_ones(fast_disk, num_swap_slots=7).for_growth(9)
    assert full.method is Method.RECOMPUTE
    # Two that leave at once: there is room for one of them.
    setting = two_long_ones(fast_disk, num_swap_slots=10)
    setting.run(2, known=13, computed=12)
    methods = [p.method for p in setting.for_growth(13)]
    assert sorted(methods) == [Method.RECOMPUTE, Method.SWAP]
    # Nothing is measured yet.
    (unknown,) = two_long_ones(RestoreCosts()).for_growth(2)
    assert unknown.method is Method.RECOMPUTE


def test_the_cheapest_victim_of_a_class_goes_but_never_the_first() -> None:
    setting = Setting(RestoreCosts(token=0.001))
    setting.run(0, known=6, computed=5)
    short = setting.run(1, known=6, computed=5)
    setting.run(2, known=50, computed=3)
    # The latest has least to compute again; without it, what is missing is not missing any more.
    (preemption,) = setting.for_growth(10)
    assert preemption.victims[0].rank.arrival == 2
    setting = Setting(RestoreCosts(token=0.001))
    setting.run(0, known=6, computed=5)
    short = setting.run(1, known=6, computed=5)
    setting.run(2, known=34, computed=33)
    (preemption,) = setting.for_growth(1)
    assert preemption.method is Method.DROP_TAIL
    assert preemption.seconds == 0.001
    assert preemption.victims[0] is not short or preemption.num_kept == 1


def test_those_who_wait_give_up_what_they_kept_from_the_end() -> None:
    setting = Setting()
    first = setting.run(0, known=17, computed=16)
    second = setting.run(1, known=17, computed=16)
    third = setting.fork(second, 2)
    for sequence in (first, second, third):
        sequence.status = SequenceStatus.WAITING
    waiting = [third, second, first]
    # The third shares all it has with the second: only both together give anything.
    cuts, num_gained = cuts_of_waiting(waiting, setting.tables, 2)
    assert [(cut.sequence, cut.num_kept) for cut in cuts] == [(third, 0), (second, 2)]
    assert num_gained == 2
    cuts, num_gained = cuts_of_waiting(waiting, setting.tables, 6)
    assert [cut.num_kept for cut in cuts] == [0, 0, 2]
    assert num_gained == 6
