"""Why a request is preempted, and what happens to it.

A running sequence gives up its blocks for one of two reasons:

* growth: the running sequences together need more blocks than are free, to compute the tokens they know.
  The victim is the running sequence with the worst rank: the worst priority, then the latest arrival,
  then the highest index in its request. It may be the very one that wanted to grow.
* priority (only under the policy `priority`): a request of a better class waits for blocks or a seat.
  Victims are taken in the same order, but only of worse classes, and only if that lets the request in.

Victims are chosen before anything is planned, so none is ever in a plan. A victim waits at its old rank,
in front of all who came later. Its tokens are kept, its keys and values go to the prefix cache: admitted
again, it computes what the cache has lost of prompt and answer in chunks like a prompt, and draws the next
token where it stopped.
"""

from octavo.core.admission import Shortage
from octavo.core.block_tables import BlockTables
from octavo.core.sequence import RankedSequences, Sequence, SequenceStatus
from octavo.core.step import BlockId


def victims_of_growth(
    running: RankedSequences, tables: BlockTables, num_missing: int
) -> list[Sequence]:
    """Who gives up its blocks so that the others, who lack `num_missing` of them, can grow."""
    relief = Relief(tables)
    victims: list[Sequence] = []
    for victim in reversed(running):
        if num_missing <= 0:
            break
        victims.append(victim)
        num_missing -= relief.without(victim)
    return victims


def victims_of_priority(
    candidate: Sequence, shortage: Shortage, running: RankedSequences, tables: BlockTables
) -> list[Sequence] | None:
    """Who makes way for a waiting sequence: nobody if it lacks nothing; None if it has to wait."""
    num_seats, num_blocks = shortage
    relief = Relief(tables)
    victims: list[Sequence] = []
    for victim in reversed(running):
        if num_seats <= 0 and num_blocks <= 0:
            break
        if victim.rank.priority <= candidate.rank.priority:
            return None
        victims.append(victim)
        num_seats -= victim.num_seats
        num_blocks -= relief.without(victim) + victim.num_seats  # it needs no spare blocks either
    return victims


def give_up_blocks(victim: Sequence, tables: BlockTables) -> None:
    """Turn a running sequence into a waiting one that has nothing computed."""
    tables.free(victim.seq_id)
    victim.num_lost = victim.num_computed
    victim.num_computed = 0
    victim.status = SequenceStatus.WAITING


class Relief:
    """How many blocks the others would have more if sequences left, one after another. Changes nothing.

    All running sequences are to grow; so of n who share a partly filled block, n - 1 need a copy of it,
    and each who leaves saves one block: a copy, or at last the block itself.
    """

    def __init__(self, tables: BlockTables) -> None:
        self._tables = tables
        self._num_leaving: dict[BlockId, int] = {}

    def without(self, sequence: Sequence) -> int:
        """Blocks gained if this running sequence left too: those it alone holds, and those it would take."""
        tables = self._tables
        num_tokens = tables.num_tokens(sequence.seq_id)
        gained = tables.blocks_for(len(sequence.token_ids))
        if num_tokens == 0:
            return gained
        blocks = tables.blocks(sequence.seq_id)
        num_full = num_tokens // tables.block_size
        gained -= num_full  # now blocks to take, and the partly filled one
        for block in blocks[:num_full]:
            num_leaving = self._num_leaving.get(block, 0) + 1
            self._num_leaving[block] = num_leaving
            gained += num_leaving == tables.ref_count(block)
        return gained
