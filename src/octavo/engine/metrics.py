"""The engine's numbers under the names that a Prometheus endpoint gives them: for /metrics, and for `LLM.get_metrics`."""

from dataclasses import dataclass, field

from octavo.engine.messages import EngineStats


@dataclass(frozen=True, slots=True)
class EngineMetric:
    """One number. The names of a counter end in `_total` in Prometheus's text."""

    names: tuple[str, ...]
    text: str
    value: float
    is_counter: bool = field(default=False, kw_only=True)


def engine_metrics(stats: EngineStats) -> list[EngineMetric]:
    """All of them: each under its `octavo_` name, and under vLLM's where vLLM has it."""
    return [*_requests(stats), *_cache(stats), *_tiers(stats)]


def _both(name: str) -> tuple[str, str]:
    return f"octavo_{name}", f"vllm:{name}"


def _requests(stats: EngineStats) -> list[EngineMetric]:
    return [
        EngineMetric(_both("num_requests_running"), "Requests in the batch.", stats.num_running),
        EngineMetric(_both("num_requests_waiting"), "Requests in the queue.", stats.num_waiting),
        EngineMetric(
            _both("prompt_tokens"), "Prompt tokens of requests that began.", stats.num_prompt_tokens, is_counter=True
        ),
        EngineMetric(_both("generation_tokens"), "Tokens drawn.", stats.num_generation_tokens, is_counter=True),
        EngineMetric(
            _both("num_preemptions"), "Sequences that gave up their blocks to others.", stats.num_preemptions, is_counter=True
        ),
        *(
            EngineMetric(_both(f"spec_decode_{name}"), text, value, is_counter=True)
            for name, text, value in (
                ("num_drafts", "Guesses at the next tokens of a sequence.", stats.num_drafts),
                ("num_draft_tokens", "Tokens guessed.", stats.num_draft_tokens),
                ("num_accepted_tokens", "Tokens guessed right.", stats.num_accepted_tokens),
            )
        ),
        EngineMetric(("octavo_engine_steps",), "Steps.", stats.num_steps, is_counter=True),
        EngineMetric(("octavo_engine_step_seconds",), "Time in steps.", stats.step_seconds, is_counter=True),
    ]  # fmt: skip


def _cache(stats: EngineStats) -> list[EngineMetric]:
    usage = stats.num_blocks_referenced / max(1, stats.num_blocks_total)
    unused = stats.num_slots_referenced - stats.num_slots_used
    saved = stats.num_blocks_saved_by_sharing
    return [
        EngineMetric(
            (*_both("kv_cache_usage_perc"), "vllm:gpu_cache_usage_perc"),
            "Share of blocks that live requests hold; cached blocks count as free.",
            usage,
        ),
        *(
            EngineMetric((f"octavo_kv_{name}",), text, value)
            for name, text, value in (
                ("blocks", "Blocks in the pool.", stats.num_blocks_total),
                ("blocks_referenced", "Blocks that live requests hold.", stats.num_blocks_referenced),
                ("blocks_cached", "Blocks kept for reuse, free when needed.", stats.num_blocks_cached),
                ("blocks_free", "Blocks that hold nothing.", stats.num_blocks_free),
                ("blocks_saved_by_sharing", "Blocks that live requests would need in addition if none were shared.", saved),
                ("slots_reserved", "Token slots of referenced blocks.", stats.num_slots_referenced),
                ("slots_used", "Token slots of referenced blocks that hold a token.", stats.num_slots_used),
                ("slots_wasted", "Token slots of referenced blocks without a token.", unused),
            )
        ),
        EngineMetric(
            _both("prefix_cache_queries"), "Prompt tokens looked up in the prefix cache.", stats.num_prefix_queries,
            is_counter=True,
        ),
        EngineMetric(
            _both("prefix_cache_hits"), "Prompt tokens found in the prefix cache, and not computed.",
            stats.num_prefix_hits, is_counter=True,
        ),
        EngineMetric(
            ("octavo_kv_blocks_evicted",), "Cached blocks that were given to others.", stats.num_blocks_evicted,
            is_counter=True,
        ),
        EngineMetric(("octavo_kv_block_copies",), "Blocks copied before a write.", stats.num_block_copies, is_counter=True),
        EngineMetric(
            ("octavo_kv_waste_ratio_sum",),
            "Share of wasted slots, summed over steps: divide by octavo_engine_steps_total.",
            stats.kv_waste_sum,
            is_counter=True,
        ),
    ]  # fmt: skip


def _tiers(stats: EngineStats) -> list[EngineMetric]:
    gauges = (
        ("swap_blocks", "Blocks that the swap space can hold.", stats.num_swap_slots),
        ("swap_blocks_used", "Blocks of preempted requests in the swap space.", stats.num_swap_slots_used),
        ("recompute_token_seconds", "Time to compute a token again, as measured.", stats.recompute_token_seconds),
        ("swap_block_seconds", "Time to write a block to the swap space and read it back, as measured.", stats.swap_page_seconds),
    )  # fmt: skip
    counters = (
        ("preemptions_dropped_tail", "Preempted sequences that gave up only their last blocks.", stats.num_dropped_tails),
        ("preemptions_swapped", "Preempted sequences whose blocks were swapped out.", stats.num_swaps),
        ("blocks_swapped_out", "Blocks written to the swap space.", stats.num_blocks_swapped_out),
        ("blocks_swapped_in", "Blocks read back from it.", stats.num_blocks_swapped_in),
        ("blocks_stored", "Cached blocks handed over to be stored in --kv-cache-dir.", stats.num_blocks_stored),
        ("blocks_loaded", "Blocks had from --kv-cache-dir, and not computed.", stats.num_blocks_loaded),
        ("blocks_failed", "Blocks that could not be had back, and were computed again.", stats.num_blocks_failed),
    )  # fmt: skip
    return [
        *(EngineMetric((f"octavo_kv_{name}",), text, value) for name, text, value in gauges),
        *(
            EngineMetric((f"octavo_kv_{name}",), text, value, is_counter=True)
            for name, text, value in counters
        ),
    ]
