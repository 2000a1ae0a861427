"""What it takes to give up a sequence's memory and get it back: copying its blocks out and in, or computing them again."""

from dataclasses import dataclass

from octavo.planning.costs import CostModel
from octavo.planning.model_numbers import ModelNumbers
from octavo.planning.work import StepWork


@dataclass(frozen=True, slots=True)
class Link:
    """Between the device and where blocks are swapped to."""

    bytes_per_s: float
    copy_s: float
    """What every single copy takes besides."""


@dataclass(frozen=True, slots=True)
class SwapDisk:
    """Where preempted sequences have their pages while they wait."""

    num_bytes: int
    bytes_per_s: float
    """Written, or read."""


class PageTraffic:
    """Pages on their way to a swap space and back: one after another, while steps compute.

    As in `engine.tiered_runner`: writes go on beside later steps, and a step ends when all that it reads is there.
    """

    def __init__(self, page_s: float) -> None:
        """Seconds for a page, in either direction."""
        self._page_s = page_s
        self._idle_at = 0.0

    def end_of_step(self, start: float, end: float, num_out: int, num_in: int) -> float:
        """When a step ends that has computed at `end`, and moves so many pages."""
        if num_out or num_in:
            self._idle_at = max(self._idle_at, start) + (num_out + num_in) * self._page_s
        return max(end, self._idle_at) if num_in else end


def swap_seconds(model: ModelNumbers, num_tokens: int, block_size: int, link: Link) -> float:
    """Out and in again. A block is two pieces in every layer, keys and values; each piece is a copy."""
    num_blocks = -(-num_tokens // block_size)
    num_copies = num_blocks * 2 * model.span.num_layers
    num_bytes = num_blocks * block_size * model.token_bytes
    return 2 * (num_copies * link.copy_s + num_bytes / link.bytes_per_s)


def recompute_seconds(model: ModelNumbers, num_tokens: int, costs: CostModel) -> float:
    """All tokens in one step, by itself. How large blocks are does not matter."""
    span = model.span
    work = StepWork(num_tokens, 1, span.keys(0, num_tokens), span.pairs(0, num_tokens))
    return costs.seconds(work)
