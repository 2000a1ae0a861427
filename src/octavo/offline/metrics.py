"""The engine's numbers under the names of a Prometheus endpoint."""

from octavo.engine.messages import EngineStats
from octavo.outputs import Metric


def metrics_of(stats: EngineStats) -> list[Metric]:
    """vLLM's names where it has them, `octavo_` for the rest."""
    values = {
        "vllm:num_requests_running": stats.num_running,
        "vllm:num_requests_waiting": stats.num_waiting,
        "vllm:kv_cache_usage_perc": stats.num_blocks_referenced / stats.num_blocks_total,
        "vllm:num_preemptions_total": stats.num_preemptions,
        "vllm:prompt_tokens_total": stats.num_prompt_tokens,
        "vllm:generation_tokens_total": stats.num_generation_tokens,
        "octavo_kv_blocks_total": stats.num_blocks_total,
        "octavo_kv_blocks_referenced": stats.num_blocks_referenced,
        "octavo_kv_blocks_cached": stats.num_blocks_cached,
        "octavo_kv_blocks_free": stats.num_blocks_free,
        "octavo_kv_blocks_saved_by_sharing": stats.num_blocks_saved_by_sharing,
        "octavo_kv_slots_used": stats.num_slots_used,
        "octavo_kv_slots_referenced": stats.num_slots_referenced,
        "octavo_kv_waste_mean": stats.kv_waste_sum / max(1, stats.num_steps),
        "octavo_steps_total": stats.num_steps,
        "octavo_step_seconds_total": stats.step_seconds,
    }
    return [Metric(name, float(value)) for name, value in values.items()]
