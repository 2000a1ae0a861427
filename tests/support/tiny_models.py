"""Tiny models with random weights, one or more of every family, made and answered by transformers.

`TINY` lists them. `tiny_folder(name)` is a Hugging Face folder, `oracle_logits(name, ids)` what transformers
computes for it in float32. Windows are 24 and original contexts 32 tokens, so that prompts of the tests
are on both sides of each; several head sizes are not hidden size / heads.
"""

import contextlib
import functools
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.core.beam_search import BeamSearchParams

VOCAB_SIZE = 256
MAX_LEN = 2048
WINDOW = 24
ORIGINAL_LEN = 32

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_LEN,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _rope(kind: str, **values: float) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10_000.0, **values}


def _gemma(**changes: Any) -> dict[str, Any]:
    return {
        "head_dim": 32,
        "num_key_value_heads": 1,
        "query_pre_attn_scalar": 24,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": _rope("linear", factor=8.0) | {"rope_theta": 1_000_000.0},
            "sliding_attention": _rope("default"),
        },
        **changes,
    }


TINY: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType({
    "llama": ("Llama", {}),
    "llama-biases": (
        "Llama",
        {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4, "head_dim": 24},
    ),
    "llama3-rope": (
        "Llama",
        {
            "head_dim": 32,
            "rope_parameters": _rope(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=ORIGINAL_LEN,
            ),
        },
    ),
    "llama-linear-rope": ("Llama", {"rope_parameters": _rope("linear", factor=4.0)}),
    "llama-yarn-rope": (
        "Llama",
        {
            "head_dim": 32,
            "rope_parameters": _rope(
                "yarn", factor=8.0, original_max_position_embeddings=ORIGINAL_LEN
            ),
        },
    ),
    "smollm": ("Llama", {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 48, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": WINDOW, "head_dim": 24}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": (
        "Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    ),
    "qwen2-yarn-rope": (
        "Qwen2",
        {
            "rope_parameters": _rope(
                "yarn", factor=4.0, original_max_position_embeddings=ORIGINAL_LEN
            )
        },
    ),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-biases": ("Qwen3", {"head_dim": 16, "attention_bias": True, "num_attention_heads": 6}),
    "gemma3": ("Gemma3", _gemma()),
    "gemma3-untied": (
        "Gemma3",
        _gemma(tie_word_embeddings=False, num_attention_heads=4, num_key_value_heads=2, head_dim=48),
    ),
})  # fmt: skip
"""Name -> (family, changes to the common config)."""


@functools.cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="octavo-tiny-")


@functools.cache
def tiny_folder(name: str) -> Path:
    """The folder of a tiny model with config.json and model.safetensors, float32; made once a process."""
    family, changes = TINY[name]
    folder = Path(_root().name) / name
    save_tiny(folder, family, changes)
    return folder


def save_tiny(
    folder: Path,
    family: str,
    changes: Mapping[str, Any],
    *,
    seed: int = 0,
    max_shard_size: str = "1GB",
) -> None:
    """Make a model of a transformers family with random weights, and save it."""
    with _quiet():
        import torch  # late: takes seconds, and most tests do without
        import transformers

        config_class = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
        config = getattr(transformers, config_class)(**(_COMMON | dict(changes)))
        model = getattr(transformers, f"{family}ForCausalLM")(config)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(_random_values(parameter, family, generator))
        model.save_pretrained(folder, max_shard_size=max_shard_size)


def _random_values(parameter: Any, family: str, generator: Any) -> Any:
    """Matrices of about unit gain, so that attention is far from uniform; norms and biases off their start."""
    import torch

    values = torch.randn(parameter.shape, generator=generator)
    if parameter.ndim == 2:
        return values * (1.2 / parameter.shape[1] ** 0.5)
    is_norm_like = family != "Gemma3" and bool((parameter == 1).all())
    return 0.2 * values + (1.0 if is_norm_like else 0.0)


@functools.cache
def _oracle(folder: Path) -> Any:
    with _quiet():
        import torch
        import transformers

        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()


def folder_logits(folder: Path, token_ids: list[int]) -> NDArray[np.float32]:
    """transformers' logits of every position, [T, V], in float32."""
    model = _oracle(folder)
    with _quiet():
        import torch

        with torch.no_grad():
            logits = model(torch.tensor([token_ids]), use_cache=False).logits[0]
    result: NDArray[np.float32] = logits.numpy()
    return result


@functools.cache
def oracle_logits(name: str, num_tokens: int) -> NDArray[np.float32]:
    """transformers' logits of a tiny model for `prompt(num_tokens)`, [T, V]."""
    return folder_logits(tiny_folder(name), prompt(num_tokens))


def oracle_beams(
    folder: Path, token_ids: list[int], params: BeamSearchParams, end_token_ids: list[int]
) -> list[tuple[list[int], float]]:
    """transformers' beams after a prompt, best first: (generated tokens, score)."""
    model = _oracle(folder)
    with _quiet():
        import torch

        found = model.generate(
            torch.tensor([token_ids]),
            num_beams=params.beam_width,
            num_return_sequences=params.beam_width,
            max_new_tokens=params.max_tokens,
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
            do_sample=False,
            eos_token_id=end_token_ids,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
    beams = []
    for row, score in zip(found.sequences.tolist(), found.sequences_scores.tolist(), strict=True):
        generated = row[len(token_ids) :]
        ended = [place for place, token_id in enumerate(generated) if token_id in end_token_ids]
        beams.append((generated[: ended[0] + 1] if ended else generated, score))
    return beams


def prompt(num_tokens: int) -> list[int]:
    """Random token ids, the same for the same length."""
    ids: list[int] = np.random.default_rng(num_tokens).integers(3, VOCAB_SIZE, num_tokens).tolist()
    return ids


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Warnings of libraries that are only oracles here are not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        yield
