"""Totals since the engine started. The loop counts, `EngineStats` carries them to the front end."""

from octavo.core.scheduler import Scheduler
from octavo.engine.messages import EngineStats


class StatsCounter:
    """Counts what the scheduler does not: steps, tokens, time, and the waste of each step."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_generation_tokens = 0
        self._kv_waste_sum = 0.0
        self._step_seconds = 0.0

    def count_step(self, seconds: float) -> None:
        """A step has ended. The waste is that of the blocks which are still referenced after it."""
        self._num_steps += 1
        self._step_seconds += seconds
        usage = self._scheduler.usage()
        if usage.num_slots_referenced:
            self._kv_waste_sum += 1.0 - usage.num_slots_used / usage.num_slots_referenced

    def count_prompt(self, num_tokens: int) -> None:
        """A prompt is computed."""
        self._num_prompt_tokens += num_tokens

    def count_tokens(self, count: int) -> None:
        """So many tokens are generated."""
        self._num_generation_tokens += count

    def snapshot(self) -> EngineStats:
        """The totals, and the state now."""
        usage = self._scheduler.usage()
        speculation, costs = self._scheduler.speculation, self._scheduler.costs
        return EngineStats(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_blocks_total=usage.num_blocks_total,
            num_blocks_referenced=usage.num_blocks_referenced,
            num_blocks_cached=usage.num_blocks_cached,
            num_blocks_free=usage.num_blocks_free,
            num_slots_used=usage.num_slots_used,
            num_slots_referenced=usage.num_slots_referenced,
            num_blocks_saved_by_sharing=usage.num_blocks_saved_by_sharing,
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_generation_tokens=self._num_generation_tokens,
            num_drafts=speculation.num_drafts,
            num_draft_tokens=speculation.num_draft_tokens,
            num_accepted_tokens=speculation.num_accepted_tokens,
            num_preemptions=usage.num_preemptions,
            num_block_copies=usage.num_block_copies,
            num_blocks_evicted=usage.num_blocks_evicted,
            num_prefix_queries=usage.num_prefix_queries,
            num_prefix_hits=usage.num_prefix_hits,
            num_dropped_tails=usage.num_dropped_tails,
            num_swaps=usage.num_swaps,
            num_swap_slots=usage.num_swap_slots,
            num_swap_slots_used=usage.num_swap_slots_used,
            num_blocks_swapped_out=usage.num_blocks_swapped_out,
            num_blocks_swapped_in=usage.num_blocks_swapped_in,
            num_blocks_stored=usage.num_blocks_stored,
            num_blocks_loaded=usage.num_blocks_loaded,
            num_blocks_failed=usage.num_blocks_failed,
            recompute_token_seconds=costs.computing(1) or 0.0,
            swap_page_seconds=costs.swapping(1, 1) or 0.0,
            kv_waste_sum=self._kv_waste_sum,
            step_seconds=self._step_seconds,
        )
