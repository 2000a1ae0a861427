"""The memory over time, cell by cell: what the report lets one step through."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from octavo.planning.batching import Batcher, Cell
from octavo.planning.contiguous import ContiguousBatcher
from octavo.planning.paged import PagedBatcher

MOST_FRAMES = 400
MOST_CELLS = 4096
"""A larger memory is shown up to here."""
CONTIGUOUS_CELL = 16
"""Slots of a cell where there are no pages."""


@dataclass(frozen=True, slots=True)
class Frame:
    """All cells at one time."""

    time_s: float
    cells: list[Cell]


@dataclass(slots=True)
class MemoryMap:
    """Takes a frame after every step, then after every second, fourth, ... so that there are at most MOST_FRAMES."""

    cells: Callable[[], list[Cell]]
    cell_slots: int
    frames: list[Frame] = field(default_factory=list)
    _every: int = 1
    _num_steps: int = 0

    def after_step(self, now: float) -> None:
        """To be called after every step."""
        self._num_steps += 1
        if self._num_steps % self._every:
            return
        self.frames.append(Frame(now, self.cells()[:MOST_CELLS]))
        if len(self.frames) >= MOST_FRAMES:
            del self.frames[::2]
            self._every *= 2

    def as_json(self) -> dict[str, Any]:
        """Frames as runs of equal cells: [how many, owner or -1, state]; owners are numbers of `owners`."""
        owners: dict[str, int] = {}
        frames = []
        for frame in self.frames:
            runs = []
            for cell, group in groupby(frame.cells):
                owner = -1 if cell.owner is None else owners.setdefault(cell.owner, len(owners))
                runs.append([sum(1 for _ in group), owner, cell.state.value])
            frames.append({"t": round(frame.time_s, 4), "runs": runs})
        return {"owners": list(owners), "frames": frames, "cell_slots": self.cell_slots}


def map_of(batcher: Batcher) -> MemoryMap | None:
    """A map of this batcher's memory; None for one that has nothing to show but full rows."""
    if isinstance(batcher, PagedBatcher):
        return MemoryMap(batcher.cells, batcher.tables.block_size)
    if isinstance(batcher, ContiguousBatcher):
        return MemoryMap(lambda: batcher.cells(CONTIGUOUS_CELL), CONTIGUOUS_CELL)
    return None
