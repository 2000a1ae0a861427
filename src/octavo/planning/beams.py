"""What beams share, with the real block tables and made-up parents.

Which pages beams share depends on one thing only: which beam each survivor comes from. Beams that part go on with nearly
the same words, to which a model gives nearly the same probabilities, so who is behind stays behind, until a step is
less decided than all since they parted: then the second best word of the leader beats the best word of the other, which
is replaced. Records come ever more seldom, as 1 over the number of steps (Renyi, 1962). So a survivor comes from the
beam in its own place or, with a chance of `switch` / tokens generated so far, from any of them.
"""

import random
from dataclasses import dataclass

from octavo.core.block_tables import BlockTables


@dataclass(frozen=True, slots=True)
class BeamModel:
    """How beams follow each other."""

    switch: float
    """Over the number of tokens so far: the chance that a survivor's parent is drawn from all beams alike."""
    block_size: int = 16


def share_saved(
    model: BeamModel, width: int, lengths: list[tuple[int, int]], seed: int = 0
) -> float:
    """Share of the blocks that sharing saves, over all steps of requests of these prompt and answer lengths."""
    source = random.Random(f"beams {seed}")
    saved = held = 0
    for prompt_len, output_len in lengths:
        blocks = -(-(prompt_len + output_len) // model.block_size)
        group = _Group(
            BlockTables((width + 1) * blocks + width, model.block_size), width, prompt_len
        )
        for num_tokens in range(1, output_len):
            group.step(min(1.0, model.switch / num_tokens), source)
            saved += group.tables.num_saved_by_sharing
            held += group.tables.num_referenced
    return saved / (saved + held) if saved else 0.0


class _Group:
    """The beams of one request."""

    def __init__(self, tables: BlockTables, width: int, prompt_len: int) -> None:
        self.tables = tables
        self._length = prompt_len
        tables.grow(0, prompt_len)
        self._beams = list(range(width))
        self._next = width
        for beam in self._beams[1:]:
            tables.fork(0, beam)

    def step(self, switch: float, source: random.Random) -> None:
        """Choose the survivors' parents, then let each beam have one token more."""
        width = len(self._beams)
        parents = [
            source.randrange(width) if source.random() < switch else place for place in range(width)
        ]
        self._replace(parents)
        self._length += 1
        for beam in self._beams:
            self.tables.grow(beam, self._length)

    def _replace(self, parents: list[int]) -> None:
        """Beams whose parent is another are forks of it; those without a child are given back first."""
        children: list[int] = []
        kept = set()
        for parent in parents:
            if parent not in kept:
                kept.add(parent)
                children.append(self._beams[parent])
                continue
            self.tables.fork(self._beams[parent], self._next)
            children.append(self._next)
            self._next += 1
        for place, beam in enumerate(self._beams):
            if place not in kept:
                self.tables.free(beam)
        self._beams = children
