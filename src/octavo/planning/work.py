"""What a step has to do, as the few numbers that its time depends on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from octavo.core.step import StepPlan
from octavo.models.spec import LayerSpec


class StepWork(NamedTuple):
    """The size of one step."""

    num_tokens: int
    """T: tokens computed."""
    num_rows: int
    """Rows of logits: tokens from which something is drawn."""
    num_keys: int
    """Keys that are read, over all layers: each one that a sequence's tokens may see, once a layer."""
    num_pairs: int
    """Pairs of a token and a key that it attends to, over all layers."""


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """How far the layers of a model look back: (window, number of layers); None: to all tokens."""

    layers: tuple[tuple[int | None, int], ...]

    @classmethod
    def of(cls, layers: Iterable[LayerSpec]) -> "AttentionSpan":
        """The spans of these layers."""
        return cls(tuple(Counter(layer.window for layer in layers).items()))

    @property
    def is_whole(self) -> bool:
        """Whether every layer sees all tokens."""
        return all(window is None for window, _ in self.layers)

    @property
    def num_layers(self) -> int:
        """L."""
        return sum(count for _, count in self.layers)

    def keys(self, start: int, count: int) -> int:
        """Keys read by `count` tokens from position `start` on."""
        end, total = start + count, 0
        for window, num_layers in self.layers:
            first = 0 if window is None else max(0, start + 1 - window)
            total += num_layers * (end - first)
        return total

    def pairs(self, start: int, count: int) -> int:
        """Pairs of these tokens and the keys that each may see."""
        total = 0
        for window, num_layers in self.layers:
            below = count if window is None else min(count, max(0, window - start))
            # Positions below the window see all before them, the others see `window` keys.
            seen = below * start + below * (below + 1) // 2
            if window is not None:
                seen += (count - below) * window
            total += num_layers * seen
        return total

    def decode_keys(self, lengths: Iterable[int]) -> int:
        """Keys read when one token is computed at each of these positions; as many as there are pairs."""
        if self.is_whole:
            positions = list(lengths)
            return self.num_layers * (sum(positions) + len(positions))
        return sum(self.keys(start, 1) for start in lengths)


def work_of(plan: StepPlan, span: AttentionSpan) -> StepWork:
    """The size of a step that the scheduler has planned."""
    num_tokens = num_rows = num_pairs = 0
    decoding: list[int] = []
    num_keys = 0
    for seq in plan.seqs:
        count = len(seq.token_ids)
        num_tokens += count
        num_rows += len(seq.draw_offsets)
        if count == 1:
            decoding.append(seq.start)
        else:
            num_keys += span.keys(seq.start, count)
            num_pairs += span.pairs(seq.start, count)
    decode_keys = span.decode_keys(decoding)
    return StepWork(num_tokens, num_rows, num_keys + decode_keys, num_pairs + decode_keys)
