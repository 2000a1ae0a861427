"""Opens the tiers of memory that the settings name, and joins them to a runner."""

import contextlib
import logging
from pathlib import Path

from octavo.config import CacheConfig
from octavo.core.block_tables import BlockTables
from octavo.core.costs import RestoreCosts
from octavo.core.step import PageMemory, Runner
from octavo.core.tiers import Tiers
from octavo.engine.prefix_store import PrefixStore
from octavo.engine.swap_file import SwapFile
from octavo.engine.tiered_runner import TieredRunner
from octavo.errors import TierError

logger = logging.getLogger(__name__)


def open_tiers(
    cache: CacheConfig, fingerprint: bytes, tables: BlockTables, runner: Runner, memory: PageMemory
) -> tuple[Tiers, Runner]:
    """What the scheduler knows of other tiers, and a runner that moves pages to and from them.

    `memory` is the pool that `runner` computes in. Raises ConfigError for space that is not there.
    """
    costs = RestoreCosts()
    with contextlib.ExitStack() as opened:
        swap = store = None
        if cache.swap_space:
            folder = None if cache.swap_dir is None else Path(cache.swap_dir)
            swap = SwapFile(cache.swap_space, memory.page_bytes, folder)
            opened.callback(swap.close)
            try:
                swap.probe(costs)
            except TierError as error:  # as one that fails later: no answer depends on it
                logger.warning("%s", error)
        if cache.kv_cache_dir is not None:
            directory = Path(cache.kv_cache_dir)
            store = PrefixStore(directory, cache.kv_cache_dir_size, memory.page_bytes, fingerprint)
        opened.pop_all()
    num_swap_slots = 0 if swap is None else swap.num_slots
    tiers = Tiers(tables, costs, num_swap_slots=num_swap_slots, stored=store)
    if swap is None and store is None:
        return tiers, runner
    return tiers, TieredRunner(runner, memory, costs, swap=swap, store=store)
