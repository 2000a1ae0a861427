"""Which slots of the swap space hold which blocks of which preempted sequences. Moves no bytes."""

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from octavo.core.block_pool import IntegrityError
from octavo.core.step import BlockId, BlockSwap, SeqId


@dataclass(frozen=True, slots=True)
class Swapped:
    """What a preempted sequence has in the swap space."""

    slots: "array[int]" = field(default_factory=lambda: array("i"))
    """Of its blocks, from the first token on."""
    num_tokens: int = 0


NOT_SWAPPED = Swapped()


class SwapSpace:
    """S slots, each for one block. Sequences that leave together share the slots of the blocks that they shared."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(range(num_slots - 1, -1, -1))
        self._holders = array("i", [0]) * num_slots
        self._swapped: dict[SeqId, Swapped] = {}
        self._failed: set[int] = set()
        self.num_lost = 0
        """Slots that have failed and are not used again."""

    @property
    def num_slots(self) -> int:
        """All slots, lost ones too."""
        return len(self._holders)

    @property
    def num_free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Slots that hold a block."""
        return len(self._holders) - len(self._free) - self.num_lost

    @property
    def num_sequences(self) -> int:
        """Sequences that have something here."""
        return len(self._swapped)

    def of(self, seq_id: SeqId) -> Swapped:
        """What this sequence has here; nothing for those that were not swapped out."""
        return self._swapped.get(seq_id, NOT_SWAPPED)

    def put(self, leaving: Iterable[tuple[SeqId, "array[int]", int]]) -> list[BlockSwap]:
        """Give slots to sequences (id, blocks, tokens) that leave together. The caller has checked that they suffice."""
        slots: dict[BlockId, int] = {}
        for seq_id, blocks, num_tokens in leaving:
            assert seq_id not in self._swapped, f"sequence {seq_id} is swapped out already"
            for block in blocks:
                if block not in slots:
                    slots[block] = self._free.pop()
                self._holders[slots[block]] += 1
            self._swapped[seq_id] = Swapped(array("i", [slots[b] for b in blocks]), num_tokens)
        return [BlockSwap(block, slot) for block, slot in slots.items()]

    def release(self, seq_id: SeqId, failed: Collection[int] = ()) -> None:
        """Forget what a sequence has here, if it has anything. Slots that have failed are not given out again."""
        self._failed.update(failed)
        for slot in self._swapped.pop(seq_id, NOT_SWAPPED).slots:
            self._holders[slot] -= 1
            if self._holders[slot] == 0:
                if slot in self._failed:
                    self.num_lost += 1
                else:
                    self._free.append(slot)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every slot is free, lost or held, and once. O(S)."""
        holders = [0] * self.num_slots
        for swapped in self._swapped.values():
            for slot in swapped.slots:
                holders[slot] += 1
        if holders != list(self._holders):
            raise IntegrityError("slots of the swap space are held by others than is booked")
        free = set(self._free)
        if len(free) != len(self._free) or any(holders[slot] for slot in free):
            raise IntegrityError("a slot of the swap space is free twice, or free and held")
        num_held = sum(count > 0 for count in holders)
        if num_held + len(free) + self.num_lost != self.num_slots:
            raise IntegrityError(
                f"{len(free)} free, {num_held} held and {self.num_lost} lost slots are not {self.num_slots}"
            )
