"""Why sequences are preempted, and which.

Running sequences give up blocks for one of two reasons:

* growth: the running sequences together need more blocks than there are, to compute the tokens they know. The victims are
  of the worst priority class; among them those come first whose blocks cost the least to give up and to have again, and
  at equal cost the latest. It may be the very sequence that wanted to grow, but never the best-ranked request, as long as
  another one runs: so that one ends, and then another is the best-ranked.
* priority (only under the policy `priority`): a request of a better class waits for blocks or a seat.
  Victims are taken from the worst rank on, but only of worse classes, and only if that lets the request in.

The sequences of a request leave together; only those of a request that has the pool for itself leave one by one.

Before anybody has to leave, those who wait and have kept some blocks give up these, from the worst rank on. Victims are
chosen before anything is planned, so none is ever in a plan. A victim waits at its old rank, in front of all who came later.
Its tokens are kept; how its keys and values come back is its `Method`.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from octavo.core.admission import Shortage
from octavo.core.block_tables import BlockTables
from octavo.core.preemption_method import MethodChoice, Preemption
from octavo.core.relief import Relief
from octavo.core.sequence import RankedSequences, Sequence


class Cut(NamedTuple):
    """A sequence that waits, and the blocks that it keeps."""

    sequence: Sequence
    num_kept: int


MOST_COMPARED = 8
"""Requests whose prices are compared, from the worst rank on."""


def preemptions_for_growth(
    running: RankedSequences, tables: BlockTables, num_missing: int, choice: MethodChoice
) -> list[Preemption]:
    """Who gives up blocks so that the others, who lack `num_missing` of them, can grow."""
    relief = Relief(tables)
    preemptions: list[Preemption] = []
    *others, best = _units(running)
    lasts = [[sequence] for sequence in best[:-1]]  # the best-ranked of all fits alone
    while num_missing > 0:
        units = _comparable(others) if others else lasts[:1]
        preemption = min(
            (choice.best(unit, num_missing, relief) for unit in units),
            key=lambda p: p.seconds / min(p.num_gained, num_missing),
        )
        (others if others else lasts).remove(list(preemption.victims))
        num_missing -= preemption.num_gained
        relief.leave(preemption.victims)
        relief.num_slots += preemption.num_slots
        preemptions.append(preemption)
    return preemptions


def preemptions_for_priority(
    candidate: Sequence,
    shortage: Shortage,
    running: RankedSequences,
    tables: BlockTables,
    choice: MethodChoice,
) -> list[Preemption] | None:
    """Who makes way for a waiting sequence: nobody if it lacks nothing; None if it has to wait."""
    num_seats, num_blocks = shortage
    relief = Relief(tables)
    preemptions: list[Preemption] = []
    for unit in _units(running):
        if num_seats <= 0 and num_blocks <= 0:
            break
        if unit[0].rank.priority <= candidate.rank.priority:
            return None
        num_spare = sum(victim.num_seats for victim in unit)  # they need no spare blocks either
        preemption = choice.best(unit, num_blocks - num_spare, relief)
        relief.leave(unit)
        relief.num_slots += preemption.num_slots
        num_seats -= num_spare
        num_blocks -= preemption.num_gained + num_spare
        preemptions.append(preemption)
    return preemptions if num_seats <= 0 and num_blocks <= 0 else None


def cuts_of_waiting(
    waiting: Iterable[Sequence], tables: BlockTables, num_missing: int
) -> tuple[list[Cut], int]:
    """Who of those that wait, worst rank first, gives up which of its blocks, so that `num_missing` come free; how many do."""
    relief = Relief(tables)
    cuts: list[Cut] = []
    num_gained = 0
    for sequence in waiting:
        if num_gained >= num_missing:
            break
        if sequence.num_computed:
            tail = relief.tail_of(sequence, num_missing - num_gained)
            relief.cut(sequence, tail.num_kept)
            num_gained += tail.num_gained
            cuts.append(Cut(sequence, tail.num_kept))
    return cuts, num_gained


def _units(running: RankedSequences) -> list[list[Sequence]]:
    """Sequences that leave together, worst rank first."""
    by_request = groupby(reversed(running), key=lambda sequence: sequence.request_id)
    return [list(unit) for _, unit in by_request]


def _comparable(units: list[list[Sequence]]) -> list[list[Sequence]]:
    """The first of these, and those of its class that may go instead."""
    worst = units[0][0].rank.priority
    return [unit for unit in units[:MOST_COMPARED] if unit[0].rank.priority == worst]
