"""A GGUF model as a Hugging Face folder of bfloat16 weights, which every system can read.

Each number is the file's, dequantized and rounded to bfloat16, so that all that read the folder compute the same
model. Written once and kept.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.checkpoints.named_models import cache_dir
from octavo.errors import ConfigError
from octavo.models.model import Model, load_model
from octavo.models.rope import base_frequencies
from octavo.models.spec import DecoderSpec
from octavo.models.weights_map import config_tensor_name
from octavo.progress import Progress, silent
from octavo.text.gguf_tokenizer import gguf_tokenizer_parts
from octavo.text.tokenizer_parts import TokenizerParts

STAGE = "writing bfloat16 weights"
_HEADER_ALIGNMENT = 8


def cached_bf16_folder(gguf: Path, progress: Progress = silent) -> Path:
    """The folder of a GGUF file in the cache; written if it is not there. Raises as `bf16_folder`."""
    return bf16_folder(gguf, cache_dir() / "peers" / "models" / f"{gguf.stem}-bf16", progress)


def bf16_folder(gguf: Path, folder: Path, progress: Progress = silent) -> Path:
    """`folder`, with the model of `gguf` in it. Raises ConfigError for a family other than plain Llama."""
    if (folder / "config.json").exists():
        return folder
    model = load_model(gguf)
    tokenizer = gguf_tokenizer_parts(open_checkpoint(gguf).metadata)
    config = _config(model, tokenizer)
    half = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        _write_weights(model, half / "model.safetensors", progress)
        _write_tokenizer(tokenizer, half)
        (half / "config.json").write_text(json.dumps(config, indent=2))
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of finite floats, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def _config(model: Model, tokenizer: TokenizerParts) -> dict[str, Any]:
    spec, bos = model.spec, tokenizer.bos_token
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": _theta(spec),
        "max_position_embeddings": spec.max_position_embeddings,
        "tie_word_embeddings": spec.tied_head,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": None if bos is None else tokenizer.backend.token_to_id(bos),
        "eos_token_id": sorted(model.generation.end_token_ids),
    }


def _theta(spec: DecoderSpec) -> float:
    """The base of plain rotary frequencies."""
    first = spec.ropes[0]
    theta = float(round(first.inv_freq[1] ** (-spec.head_dim / 2)))
    plain = base_frequencies(theta, spec.head_dim)
    is_plain = np.allclose(plain, first.inv_freq, rtol=1e-6) and first.attention_factor == 1.0
    has_extras = spec.qkv_bias or spec.output_bias or spec.mlp_bias or spec.qk_norm
    if spec.architecture != "llama" or not is_plain or has_extras:
        raise ConfigError(
            "only a plain Llama can be written as a bfloat16 folder; "
            f"given: {spec.architecture} with extras"
        )
    return theta


def _write_weights(model: Model, file: Path, progress: Progress) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, weight in model.weights.items():
        start, end = end, end + 2 * int(np.prod(weight.shape))
        header[config_tensor_name(name, model.spec)] = {
            "dtype": "BF16", "shape": list(weight.shape), "data_offsets": [start, end],
        }  # fmt: skip
    with file.open("wb") as out:
        out.write(_header_bytes(header))
        for done, numbers in _numbers(model):
            out.write(numbers.tobytes())
            progress(STAGE, done)


def _numbers(model: Model) -> Iterator[tuple[float, NDArray[np.uint16]]]:
    for i, weight in enumerate(model.weights.values(), 1):
        yield i / len(model.weights), to_bf16(weight.to_float32())


def _header_bytes(header: Mapping[str, Any]) -> bytes:
    """The length in 8 bytes, then JSON, filled up with spaces."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write_tokenizer(parts: TokenizerParts, folder: Path) -> None:
    parts.backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": parts.bos_token,
        "eos_token": parts.eos_token,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
