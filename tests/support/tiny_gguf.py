"""Tiny models as GGUF files, written with the `gguf` package the way converters do.

Names come from the package's own map; q and k rows of llama are permuted to interleaved rotary pairs;
Gemma's norms become 1 + w; llama3 scaling becomes the tensor rope_freqs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from octavo.checkpoints.quants import QuantType

_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
_SCALES = {
    QuantType.Q4_K: ((0, 0.0015), (2, 0.012)),
    QuantType.Q5_K: ((0, 0.0008), (2, 0.012)),
    QuantType.Q6_K: ((208, 0.00015),),
    QuantType.Q4_0: ((0, 0.02),),
    QuantType.Q4_1: ((0, 0.02), (2, -0.15)),
    QuantType.Q5_0: ((0, 0.01),),
    QuantType.Q5_1: ((0, 0.01), (2, -0.15)),
    QuantType.Q8_0: ((0, 0.001),),
}
"""Where a block's float16 scales are, and a value with which its numbers are about 0.1 large."""


def random_blocks(
    quant: QuantType, rows: int, columns: int, random: np.random.Generator
) -> NDArray[np.uint8]:
    """Raw rows of a quantized format, [rows, bytes], with every bit of the quants random."""
    raw = random.integers(0, 256, (rows, quant.row_bytes(columns)), dtype=np.uint8)
    blocks = raw.reshape(-1, quant.block_bytes)
    for offset, size in _SCALES[quant]:
        scales = (size * random.uniform(0.5, 1.5, len(blocks))).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return raw


def write_gguf(
    folder: Path,
    path: Path,
    quant: QuantType = QuantType.F32,
    *,
    embedding_quant: QuantType | None = None,
    seed: int = 0,
) -> dict[str, NDArray[np.float32]]:
    """The model of a Hugging Face folder as GGUF, with matrices of a format.

    Formats that `gguf` cannot make (the K quants) are filled with random blocks. Returns the values that
    the file holds, by the folder's names and in its order of rows.
    """
    config = json.loads((folder / "config.json").read_text())
    architecture = _ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _add_metadata(writer, config)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    random = np.random.default_rng(seed)
    held: dict[str, NDArray[np.float32]] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        wanted = embedding_quant if embedding_quant and "embed_tokens" in name else quant
        kind = wanted if values.ndim == 2 else QuantType.F32
        raw = _raw_rows(kind, values, random)
        number = gguf.GGMLQuantizationType(kind.value)
        held[name] = gguf.dequantize(raw, number).reshape(values.shape).astype(np.float32)
        if architecture is gguf.MODEL_ARCH.LLAMA:
            raw = _interleaved(name, raw, config)
        if architecture is gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
            raw = raw + np.float32(1)
        new_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(new_name, raw, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def save_values(values: Mapping[str, NDArray[Any]], like: Path, folder: Path) -> None:
    """A Hugging Face folder with these tensors and the config of another."""
    folder.mkdir()
    (folder / "config.json").write_text((like / "config.json").read_text())
    save_file(dict(values), folder / "model.safetensors", metadata={"format": "pt"})


def _raw_rows(
    kind: QuantType, values: NDArray[np.float32], random: np.random.Generator
) -> NDArray[Any]:
    if kind in (QuantType.Q4_K, QuantType.Q5_K, QuantType.Q6_K):
        return random_blocks(kind, values.shape[0], values.shape[1], random)
    if kind is QuantType.F32:
        return values
    raw: NDArray[Any] = gguf.quantize(values, gguf.GGMLQuantizationType(kind.value))
    return raw


def _interleaved(name: str, raw: NDArray[Any], config: dict[str, Any]) -> NDArray[Any]:
    """Rows of each head from (0, 1, ..., D - 1) to (0, D/2, 1, D/2 + 1, ...)."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    count = next((config[key] for part, key in heads.items() if part in name), None)
    if count is None:
        return raw
    halves = raw.reshape(count, 2, len(raw) // count // 2, *raw.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(raw.shape)


def _add_metadata(writer: Any, config: dict[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_token_list([f"token{i}" for i in range(config["vocab_size"])])
    writer.add_token_types([1] * config["vocab_size"])
    writer.add_eos_token_id(2)
    rope = config["rope_parameters"]
    if config["model_type"] == "gemma3_text":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        kinds = config["layer_types"]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])
        rope = rope["full_attention"]
        _add_scale(writer, config, head_dim)
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_freq_base(rope["rope_theta"])
    _add_rope_scaling(writer, rope, head_dim)


def _add_scale(writer: Any, config: dict[str, Any], head_dim: int) -> None:
    if config["query_pre_attn_scalar"] != head_dim:
        writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)


def _add_rope_scaling(writer: Any, rope: dict[str, Any], head_dim: int) -> None:
    kind = rope["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, head_dim))


def _llama3_factors(rope: dict[str, Any], head_dim: int) -> NDArray[np.float32]:
    """How much slower each pair turns, by the formula of Llama 3.1 in terms of wave lengths."""
    factors = []
    low_len = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high_len = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    for i in range(head_dim // 2):
        wave_len = 2 * np.pi * rope["rope_theta"] ** (2 * i / head_dim)
        if wave_len < high_len:
            factors.append(1.0)
        elif wave_len > low_len:
            factors.append(rope["factor"])
        else:
            smooth = (
                rope["original_max_position_embeddings"] / wave_len - rope["low_freq_factor"]
            ) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)
