"""vLLM's keyword arguments of `LLM`: honoured, accepted because they cannot change an answer, or refused by name."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from octavo.core.sampling_params import SamplingParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError
from octavo.models.generation import SAMPLING_NAMES

NO_EFFECT = frozenset(
    (
        "allowed_local_media_path",
        "async_scheduling",
        "compilation_config",
        "cpu_offload_gb",
        "disable_cascade_attn",
        "disable_custom_all_reduce",
        "disable_log_stats",
        "distributed_executor_backend",
        "enable_chunked_prefill",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_offloading_size",
        "limit_mm_per_prompt",
        "max_num_partial_prefills",
        "max_parallel_loading_workers",
        "max_seq_len_to_capture",
        "mm_processor_kwargs",
        "prefix_caching_hash_algo",
        "trust_remote_code",
        "watermark",
    )
)
"""Accepted: about speed or memory of other machines, or (trust_remote_code) a permission that is never used."""

ACCEPTED_VALUES: Mapping[str, tuple[object, ...]] = {
    "calculate_kv_scales": (False,),
    "code_revision": (None,),
    "config_format": ("auto", "hf"),
    "convert": ("auto", "none"),
    "data_parallel_size": (1,),
    "disable_sliding_window": (False,),
    "download_dir": (None,),
    "enable_expert_parallel": (False,),
    "enable_lora": (False,),
    "enable_prompt_embeds": (False,),
    "enable_sleep_mode": (False,),
    "guided_decoding_backend": ("auto",),
    "hf_config_path": (None,),
    "hf_overrides": (None, {}),
    "hf_token": (None, False),
    "kv_transfer_config": (None,),
    "load_format": ("auto", "gguf", "safetensors"),
    "logits_processors": (None, []),
    "logprobs_mode": ("raw_logprobs",),
    "model_impl": ("auto", "vllm"),
    "pipeline_parallel_size": (1,),
    "rope_scaling": (None, {}),
    "rope_theta": (None,),
    "runner": ("auto", "generate"),
    "scheduler_cls": (None,),
    "skip_tokenizer_init": (False,),
    "structured_outputs_config": (None,),
    "task": ("auto", "generate"),
    "tensor_parallel_size": (1,),
    "tokenizer_mode": ("auto", "hf"),
    "tokenizer_revision": (None,),
    "worker_cls": ("auto",),
}
"""What Octavo does: other values would change the answer and are refused."""


def check_other_arguments(others: Mapping[str, Any], honoured: Iterable[str]) -> None:
    """Look at arguments that `LLM` does not have itself.

    Raises UnsupportedParameterError for one that would have an effect, TypeError for one that nobody knows.
    """
    for name, value in others.items():
        if name in NO_EFFECT:
            continue
        if name in ACCEPTED_VALUES:
            if not any(value == allowed for allowed in ACCEPTED_VALUES[name]):
                allowed = " or ".join(repr(choice) for choice in ACCEPTED_VALUES[name])
                raise UnsupportedParameterError(
                    f"{name} is supported only as {allowed}; given: {value!r}",
                    parameter=name,
                    value=value,
                )
            continue
        near = difflib.get_close_matches(name, (*honoured, *NO_EFFECT, *ACCEPTED_VALUES), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"LLM() has no argument {name!r}{hint}")


def default_sampling_params(
    generation_config: str,
    override: Mapping[str, Any] | None,
    model_defaults: Mapping[str, float | int],
) -> SamplingParams:
    """Sampling of requests that bring no parameters: the model authors' (generation_config "auto") or vLLM's own
    ("vllm"), with `override` on top.
    """
    if generation_config not in ("auto", "vllm"):
        raise UnsupportedParameterError(
            f'generation_config is supported only as "auto" or "vllm"; given: {generation_config!r}',
            parameter="generation_config",
            value=generation_config,
        )
    values: dict[str, Any] = dict(model_defaults) if generation_config == "auto" else {}
    for name, value in (override or {}).items():
        if name not in (*SAMPLING_NAMES, "max_new_tokens"):
            raise InvalidParameterError(
                f"override_generation_config may set {', '.join(SAMPLING_NAMES)} and max_new_tokens; given: {name}",
                parameter="override_generation_config",
                value=name,
            )
        values["max_tokens" if name == "max_new_tokens" else name] = value
    return SamplingParams(**values)
