"""How the block pool is used at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KvUsage:
    """State of the pool now, and totals since the start. Blocks: total = referenced + cached + free."""

    num_blocks_total: int
    num_blocks_referenced: int
    num_blocks_free: int
    num_slots_used: int
    """Slots of referenced blocks that hold a token; a shared block counts once."""
    num_slots_referenced: int
    """All slots of referenced blocks: those used and the internal waste."""
    num_blocks_saved_by_sharing: int
    """Blocks that tables without sharing would hold in addition."""
    num_block_copies: int
    """Copies made on write, since the start."""
    num_preemptions: int
    """Sequences that had to give up their blocks, since the start."""
    num_blocks_cached: int
    """Blocks that nobody references but that still hold a reusable prefix."""
    num_blocks_evicted: int
    """Cached blocks that were given to others, since the start."""
    num_prefix_queries: int
    """Prompt tokens that were looked up in the prefix cache, since the start."""
    num_prefix_hits: int
    """Those that were found."""
    num_dropped_tails: int = 0
    """Of the preemptions: those that gave up only their last blocks."""
    num_swaps: int = 0
    """Of the preemptions: those whose pages were swapped out. The rest is computed again."""
    num_swap_slots: int = 0
    """Blocks that the swap space can hold."""
    num_swap_slots_used: int = 0
    """Blocks that it holds."""
    num_blocks_swapped_out: int = 0
    """Since the start."""
    num_blocks_swapped_in: int = 0
    """Since the start."""
    num_blocks_stored: int = 0
    """Cached blocks handed over to be stored, since the start."""
    num_blocks_loaded: int = 0
    """Blocks had from what was stored, since the start."""
    num_blocks_failed: int = 0
    """Blocks that could not be had back and were computed again, since the start."""
