"""What a checkpoint says about generation: where it ends, and the sampling its authors recommend."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.checkpoints.checkpoint import Checkpoint
from octavo.checkpoints.json_object import read_json_object
from octavo.core.sampling_params import (
    MAX_REPETITION_PENALTY,
    MAX_TEMPERATURE,
    MIN_REPETITION_PENALTY,
)
from octavo.errors import CheckpointError

_GGUF_END_KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom", "eog"))
_GGUF_SPECIAL_TYPES = (3, 4)
"""GGUF's numbers for control and user-defined tokens, which are never made of ordinary text."""
_END_TEXTS = frozenset(
    ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<EOT>")
)
"""Tokens that end a turn or a text in the published chat formats: GGUF files often name only one of theirs."""

_SAMPLING_LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, MAX_TEMPERATURE),
    "top_p": (math.ulp(0.0), 1.0),
    "top_k": (-1, math.inf),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
}
SAMPLING_NAMES = tuple(_SAMPLING_LIMITS)
"""The sampling options that a model's authors may recommend."""


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Read once with the model."""

    end_token_ids: frozenset[int]
    """Any of them ends a sequence, unless `ignore_eos`. All are below the vocabulary size."""
    sampling: Mapping[str, float | int]
    """Those of `SAMPLING_NAMES` that the authors set. Never a length."""


def read_generation_defaults(checkpoint: Checkpoint, vocab_size: int) -> GenerationDefaults:
    """End tokens from every place that may name one, and sampling from generation_config.json.

    A folder: `eos_token_id` of generation_config.json and config.json, `eos_token` of
    tokenizer_config.json. A GGUF file: its eos, eot, eom and eog ids, and special tokens of its vocabulary
    that are known to end a turn. Raises CheckpointError for values of a wrong kind.
    """
    if checkpoint.format == "gguf":
        ids, sampling = _gguf_end_token_ids(checkpoint), {}
    else:
        path = checkpoint.path / "generation_config.json"
        config = read_json_object(path) if path.exists() else {}
        ids = _token_ids(config.get("eos_token_id"), f"{path}: eos_token_id")
        ids |= _token_ids(
            checkpoint.metadata.get("eos_token_id"),
            f"{checkpoint.path / 'config.json'}: eos_token_id",
        )
        ids |= _tokenizer_end_ids(checkpoint.path)
        sampling = _sampling(config, path)
    # An id without a row in the head can never be generated, and nothing may index logits with it.
    return GenerationDefaults(frozenset(i for i in ids if i < vocab_size), sampling)


def _gguf_end_token_ids(checkpoint: Checkpoint) -> set[int]:
    metadata = checkpoint.metadata
    ids: set[int] = set()
    for key in _GGUF_END_KEYS:
        ids |= _token_ids(metadata.get(key), f"{checkpoint.path}: {key}")
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if tokens is not None and types is not None:
        special = np.flatnonzero(np.isin(types, _GGUF_SPECIAL_TYPES)).tolist()
        ids |= {i for i in special if tokens[i] in _END_TEXTS}
    return ids


def _token_ids(value: Any, where: str) -> set[int]:
    """One id, a list of them, or nothing."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise CheckpointError(
                f"{where}: must be a token id or a list of them; given: {value!r}"
            )
    return set(ids)


def _tokenizer_end_ids(folder: Path) -> set[int]:
    """The id of tokenizer_config.json's `eos_token`, if the file has one and says or implies its id."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return set()
    config = read_json_object(path)
    text = config.get("eos_token")
    if isinstance(text, dict):
        text = text.get("content")
    if not isinstance(text, str):
        return set()
    return {i for i, content in _added_tokens(config, folder) if content == text}


def _added_tokens(tokenizer_config: Mapping[str, Any], folder: Path) -> list[tuple[int, str]]:
    decoder = tokenizer_config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        entries = [
            {"id": key, **entry} for key, entry in decoder.items() if isinstance(entry, dict)
        ]
    else:
        entries = _tokenizer_json_added_tokens(folder / "tokenizer.json")
    return [(int(entry["id"]), entry["content"]) for entry in entries if _is_added_token(entry)]


def _is_added_token(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("content"), str)
        and str(entry.get("id")).isdecimal()
    )


def _tokenizer_json_added_tokens(path: Path) -> list[Any]:
    """`added_tokens` alone: parsing the vocabulary behind it, often 20 MB, would take longer than the load."""
    key = '"added_tokens":'
    text = path.read_text("utf-8", errors="replace") if path.exists() else ""
    start = text.find(key)
    if start < 0:
        return []
    try:
        value, _ = json.JSONDecoder().raw_decode(
            text[start + len(key) : start + (1 << 22)].lstrip()
        )
    except ValueError as error:
        raise CheckpointError(f"{path}: added_tokens: not valid JSON: {error}") from error
    return value if isinstance(value, list) else []


def _sampling(config: Mapping[str, Any], path: Path) -> dict[str, float | int]:
    values: dict[str, float | int] = {}
    for name, (low, high) in _SAMPLING_LIMITS.items():
        value = config.get(name)
        if value is None:
            continue
        kinds = (int,) if name == "top_k" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            raise CheckpointError(f"{path}: {name}: not a value that sampling can use: {value!r}")
        values[name] = value
    return values
