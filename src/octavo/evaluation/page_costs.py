"""What a page costs the books: found, taken, published, given back, evicted; in pools of any size."""

import time
from array import array
from dataclasses import dataclass
from itertools import pairwise

from octavo.core.block_tables import BlockTables
from octavo.evaluation.percentiles import median

BLOCK_SIZE = 16
US = 1e6


@dataclass(frozen=True, slots=True)
class PageCosts:
    """Microseconds for each page of a prompt; medians."""

    num_blocks: int
    prompt_len: int
    miss_us: float
    """A prompt that nothing is known of, all of it: its first page is looked for."""
    take_us: float
    publish_us: float
    """With its key."""
    hit_us: float
    """A prompt that is known, found page by page, keys included, and held."""
    free_us: float
    evict_us: float
    """Taken when every page of the pool is cached: the oldest is forgotten for it."""


def measure_page_costs(num_blocks: int, prompt_len: int, *, num_prompts: int = 20) -> PageCosts:
    """Prompts of this length, one after another, over a pool of this size.

    Raises ValueError if the pool does not hold them all.
    """
    pages = prompt_len // BLOCK_SIZE
    if num_prompts * pages > num_blocks:
        raise ValueError(f"{num_blocks} blocks do not hold {num_prompts} prompts of {prompt_len}")
    tables = BlockTables(num_blocks, BLOCK_SIZE)
    rounds = [_one_prompt(tables, number, prompt_len) for number in range(num_prompts)]
    miss, take, publish, hit, free = (
        median(values) * US / pages for values in zip(*rounds, strict=True)
    )
    number = num_prompts
    while tables.num_free:  # fill what is left, until nothing is free
        length = min(prompt_len, tables.num_free * BLOCK_SIZE)
        _one_prompt(tables, number, length)
        number += 1
    evict = [_take(tables, number + i, prompt_len) for i in range(num_prompts)]
    return PageCosts(
        num_blocks, prompt_len, miss, take, publish, hit, free, median(evict) * US / pages
    )


def _prompt(number: int, length: int) -> "array[int]":
    return array("i", [number, *range(length - 1)])


def _one_prompt(
    tables: BlockTables, number: int, length: int
) -> tuple[float, float, float, float, float]:
    """Seconds to look for it, take pages, publish them, find them again, and free them."""
    tokens, chain = _prompt(number, length), tables.chain()
    first, second = 2 * number, 2 * number + 1
    times = [time.perf_counter()]
    tables.match(chain, tokens, length)
    times.append(time.perf_counter())
    tables.grow(first, length)
    times.append(time.perf_counter())
    tables.publish(first, chain, tokens, length)
    times.append(time.perf_counter())
    full = length - length % BLOCK_SIZE
    tables.attach(second, tables.match(tables.chain(), tokens, full))
    times.append(time.perf_counter())
    tables.free(first)
    begin = time.perf_counter()
    tables.free(second)  # now nobody holds them
    times.append(times[-1] + time.perf_counter() - begin)
    miss, take, publish, hit, free = (b - a for a, b in pairwise(times))
    return miss, take, publish, hit, free


def _take(tables: BlockTables, number: int, length: int) -> float:
    start = time.perf_counter()
    tables.grow(2 * number, length)
    return time.perf_counter() - start
