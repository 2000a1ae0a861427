"""The memory ledger in words: what `octavo serve` prints at its start, and `octavo plan` before."""

from collections.abc import Iterable

from octavo.resolve import GIB

MIB = 1024**2


def memory_lines(
    ledger: Iterable[tuple[str, int]], *, num_blocks: int, block_size: int, max_model_len: int
) -> list[str]:
    """Pages and what they hold, and where all bytes go. `ledger`: names and bytes, as `MemoryPlan.lines`."""
    parts = dict(ledger)
    kv_cache = parts.pop("kv cache")
    capacity = num_blocks * block_size
    sequences = counted(capacity // max_model_len, "sequence")
    return [
        f"{counted(num_blocks, 'page')} of {block_size} = {counted(capacity, 'token')}, "
        f"{sequences} of {max_model_len:,}",
        ", ".join(f"{name} {size(num_bytes)}" for name, num_bytes in parts.items() if num_bytes),
        f"kv cache taken as needed, at most {size(kv_cache)}",
    ]


def size(num_bytes: int) -> str:
    """Bytes for people: GiB, or MiB where that would be next to nothing."""
    if num_bytes < GIB // 10:
        return f"{num_bytes / MIB:.3g} MiB"
    return f"{num_bytes / GIB:.2f} GiB"


def counted(number: int, noun: str) -> str:
    """`1 page`, `2,000 pages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
