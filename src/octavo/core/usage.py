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
    num_blocks_pinned: int = 0
    """Referenced blocks that named prefixes hold."""
