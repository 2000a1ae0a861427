"""How a preempted sequence gives up its blocks and has their keys and values again: by what is cheapest, as measured.

The tail is dropped where few blocks are missing: the rest is kept, and little is computed again. Where a victim has to give
up all it has, its pages are written to the swap space and read back if that takes less time than to compute them again.
"""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from enum import Enum

from octavo.core.block_tables import BlockTables
from octavo.core.relief import Relief
from octavo.core.sequence import Sequence
from octavo.core.tiers import Tiers


class Method(str, Enum):
    """What becomes of the pages of a victim."""

    DROP_TAIL = "drop_tail"
    """It keeps its first blocks while it waits, and computes the others again."""
    SWAP = "swap"
    """All are written to the swap space, and read back."""
    RECOMPUTE = "recompute"
    """It keeps none, and computes again what the prefix cache has lost of them meanwhile."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Who leaves, how, and what for."""

    victims: tuple[Sequence, ...]
    method: Method
    num_gained: int
    """Blocks that the others have more: those given up, and those that the victims would have taken."""
    seconds: float = 0.0
    """What it costs; 0 as long as nothing is measured."""
    num_kept: int = 0
    """Blocks that the one victim keeps."""
    num_slots: int = 0
    """Of the swap space, that the victims take."""


class MethodChoice:
    """Compares the methods for victims that would leave together."""

    def __init__(self, tables: BlockTables, tiers: Tiers) -> None:
        self._tables = tables
        self._tiers = tiers

    def best(self, victims: Ordered[Sequence], num_missing: int, relief: Relief) -> Preemption:
        """The cheapest way to gain `num_missing` blocks, or as many as these sequences can give."""
        private = relief.private_blocks(victims)
        num_tokens = sum(map(self._tables.fill, private))
        seconds = self._tiers.costs.computing(num_tokens)
        gained = relief.of(victims)
        if seconds is None:
            return Preemption(tuple(victims), Method.RECOMPUTE, gained)
        options = [Preemption(tuple(victims), Method.RECOMPUTE, gained, seconds)]
        options += self._by_swap(victims, gained, len(private), relief)
        options += self._by_tail(victims, num_missing, relief)
        return min(options, key=lambda option: option.seconds)

    def _by_swap(
        self, victims: Ordered[Sequence], gained: int, num_private: int, relief: Relief
    ) -> list[Preemption]:
        num_pages = self._tables.num_held_by(victim.seq_id for victim in victims)
        # Those that others hold are likely to be there still; they are written all the same.
        seconds = self._tiers.costs.swapping(num_pages, num_private)
        num_free = self._tiers.swap_space.num_free - relief.num_slots
        if seconds is None or not 0 < num_pages <= num_free:
            return []
        return [Preemption(tuple(victims), Method.SWAP, gained, seconds, num_slots=num_pages)]

    def _by_tail(
        self, victims: Ordered[Sequence], num_missing: int, relief: Relief
    ) -> list[Preemption]:
        if len(victims) > 1:
            return []
        tail = relief.tail_of(victims[0], num_missing)
        seconds = self._tiers.costs.computing(tail.num_tokens)
        if seconds is None or tail.num_kept == 0 or tail.num_gained < num_missing:
            return []
        return [
            Preemption(tuple(victims), Method.DROP_TAIL, tail.num_gained, seconds, tail.num_kept)
        ]
