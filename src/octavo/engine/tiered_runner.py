"""A runner around a runner: moves pages between its pool and the other tiers while it computes."""

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import BoundedSemaphore

from octavo.core.costs import RestoreCosts
from octavo.core.runner_around import RunnerAround
from octavo.core.step import (
    BlockId,
    GrowingPool,
    PageMemory,
    Runner,
    StepPlan,
    StepResult,
    StoredBlock,
)
from octavo.engine.prefix_store import PrefixStore
from octavo.engine.swap_file import SwapFile
from octavo.errors import TierError

logger = logging.getLogger(__name__)

MOST_PENDING_BYTES = 64 * 1024 * 1024
"""Pages that have left the pool and are not in a file yet. More has to wait, or is not stored."""


class TieredRunner(RunnerAround):
    """Implements `Runner`. One thread writes and reads, in the order of the plans, so a page is never read before it is written.

    What leaves the pool is copied before the step and written during it and later ones; what comes back is read during the
    step. A TierError is logged and reported as `StepResult.failed_blocks`: the core computes those tokens again.
    """

    def __init__(
        self,
        runner: Runner,
        memory: PageMemory,
        costs: RestoreCosts,
        *,
        swap: SwapFile | None = None,
        store: PrefixStore | None = None,
    ) -> None:
        """`memory` is the pool that `runner` computes in. The files are closed with this runner."""
        super().__init__(runner)
        self._memory = memory
        self._costs = costs
        self._swap = swap
        self._store = store
        self._pending = BoundedSemaphore(max(1, MOST_PENDING_BYTES // memory.page_bytes))
        self._writes: deque[Future[None]] = deque()
        self._io = ThreadPoolExecutor(1, thread_name_prefix="octavo-tiers")

    def run(self, plan: StepPlan) -> StepResult:
        """Send pages away, do the step, and have the others back when it is done."""
        if not (plan.swap_outs or plan.saves or plan.swap_ins or plan.loads or self._writes):
            return super().run(plan)
        self._look_at_writes()
        for swap in plan.swap_outs:
            self._pending.acquire()
            self._swap_out(swap.block, swap.slot)
        for save in plan.saves:
            # It is only for later: where the file cannot keep up, the step does not wait for it.
            if self._pending.acquire(blocking=not plan.seqs):
                self._save(save)
        arrivals = {
            swap.block: self._io.submit(self._swap_in, swap.block, swap.slot)
            for swap in plan.swap_ins
        }
        arrivals |= {load.block: self._io.submit(self._load, load) for load in plan.loads}
        result = super().run(plan) if plan.seqs else StepResult([])
        failed = frozenset(block for block, came in arrivals.items() if not came.result())
        return replace(result, failed_blocks=failed) if failed else result

    def grow_pool(self) -> bool:
        """Implements `core.step.GrowingPool`, if the runner does."""
        return isinstance(self._runner, GrowingPool) and self._runner.grow_pool()

    def let_go(self) -> None:
        """Write what is to be written, and close the files; the runner stays open. Safe to call twice."""
        self._io.shutdown()
        self._look_at_writes()
        for file in (self._swap, self._store):
            if file is not None:
                file.close()

    def close(self) -> None:
        """Let go, then give back the runner's threads and memory. Safe to call twice."""
        self.let_go()
        super().close()

    def _look_at_writes(self) -> None:
        while self._writes and self._writes[0].done():
            self._writes.popleft().result()  # raises what is a defect

    def _swap_out(self, block: BlockId, slot: int) -> None:
        assert self._swap is not None, "there is no swap space"
        start = time.perf_counter()
        page = self._memory.read_page(block)
        seconds = time.perf_counter() - start
        self._send(partial(self._swap.write, slot, page), seconds)

    def _save(self, save: StoredBlock) -> None:
        assert self._store is not None, "nothing is stored"
        page = self._memory.read_page(save.block)
        self._send(partial(self._store.save, save.key, page), None)

    def _send(self, write: Callable[[], None], seconds: float | None) -> None:
        """`seconds` of a swap, so far; None: not one."""
        self._writes.append(self._io.submit(self._write, write, seconds))

    def _write(self, write: Callable[[], None], seconds: float | None) -> None:
        start = time.perf_counter()
        try:
            write()
        except TierError as error:
            logger.warning("%s", error)
        finally:
            self._pending.release()
        if seconds is not None:
            self._costs.learn_page_out(seconds + time.perf_counter() - start)

    def _swap_in(self, block: BlockId, slot: int) -> bool:
        assert self._swap is not None, "there is no swap space"
        start = time.perf_counter()
        came = self._bring(block, partial(self._swap.read, slot))
        self._costs.learn_page_in(time.perf_counter() - start)
        return came

    def _load(self, load: StoredBlock) -> bool:
        assert self._store is not None, "nothing is stored"
        return self._bring(load.block, partial(self._store.load, load.key))

    def _bring(self, block: BlockId, read: Callable[[], memoryview]) -> bool:
        try:
            page = read()
        except TierError as error:
            logger.warning("%s; it is computed again", error)
            return False
        self._memory.write_page(block, page)
        return True
