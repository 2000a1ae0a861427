"""One vector for a whole prompt, out of the last hidden states of its tokens."""

from array import array
from dataclasses import dataclass, field
from enum import Enum
from operator import add


class Pooling(str, Enum):
    """Which hidden states make the vector."""

    LAST = "last"
    """That of the last token, which has seen all the others."""
    MEAN = "mean"
    """The mean of all."""
    MODEL = "model"
    """The model has a way of its own, and is asked once, at the end of the prompt."""


@dataclass(slots=True)
class PooledPrompt:
    """What is known so far of the vector of a prompt."""

    pooling: Pooling
    prompt_len: int
    num_tokens: int = 0
    """Tokens from the first on that need not be looked at again."""
    _sum: "array[float]" = field(default_factory=lambda: array("d"))
    _count: int = 0

    def num_wanted(self, start: int, stop: int) -> int:
        """Of a chunk that computes positions start .. stop - 1: how many of the last give what is missing."""
        if self.pooling is Pooling.MEAN:
            return stop - start if start >= self.num_tokens else 0
        return 1 if stop == self.prompt_len else 0

    def take(self, part: "array[float]", count: int, stop: int) -> None:
        """The sum over the last `count` hidden states before position `stop`."""
        self._sum = array("d", map(add, self._sum, part)) if self._count else part
        self._count += count
        self.num_tokens = stop

    def vector(self) -> "array[float]":
        """The vector, once the whole prompt is computed."""
        return array("d", [value / self._count for value in self._sum])
