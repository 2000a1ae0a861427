"""SmolLM2 as a Hugging Face folder of bfloat16 tensors, made from the GGUF file by our own reader."""

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.models.model import Model, load_model
from octavo.models.spec import DecoderSpec

_TOP = {"embed": "model.embed_tokens", "final_norm": "model.norm"}
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip


@functools.cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="octavo-bf16-")


@functools.cache
def bf16_folder(gguf: Path) -> Path:
    """The folder of a Llama-like GGUF model; made once a process."""
    folder = Path(_root().name) / gguf.stem
    folder.mkdir()
    write_bf16_folder(load_model(gguf), folder)
    return folder


def write_bf16_folder(model: Model, folder: Path) -> None:
    """config.json and model.safetensors of a model whose matrices are Llama's."""
    tensors = {
        _stored_name(name): (weight.shape, to_bf16(weight.to_float32()))
        for name, weight in model.weights.items()
    }
    (folder / "config.json").write_text(json.dumps(_config(model.spec)))
    header: dict[str, Any] = {}
    end = 0
    for name, (shape, data) in tensors.items():
        begin, end = end, end + data.nbytes
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    raw_header = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(raw_header).to_bytes(8, "little") + raw_header)
        for _, data in tensors.values():
            file.write(data.tobytes())


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16, ties to even, of finite numbers."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded: NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def _stored_name(name: str) -> str:
    if name in _TOP:
        return f"{_TOP[name]}.weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{_LAYER[part]}.weight"


def _config(spec: DecoderSpec) -> Mapping[str, object]:
    (rope,) = spec.ropes
    theta = rope.inv_freq[1] ** (-spec.head_dim / 2)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "num_hidden_layers": spec.num_layers,
        "max_position_embeddings": spec.max_position_embeddings,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": round(theta),
        "tie_word_embeddings": spec.tied_head,
        "torch_dtype": "bfloat16",
    }
