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
