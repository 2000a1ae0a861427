"""From a checkpoint's tensor names to the names of `ModelWeights`, with every shape checked.

A missing tensor, one of another shape, and one that the model has no use for are errors: a model that
loads is the model of the file. Harmless leftovers are listed here, all of them.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from octavo.checkpoints.checkpoint import Checkpoint
from octavo.checkpoints.tensor import Tensor
from octavo.errors import CheckpointError
from octavo.models.gguf_families import ROPE_FACTORS
from octavo.models.spec import DecoderSpec
from octavo.models.weights import ModelWeights, Weight, expected_shapes

logger = logging.getLogger(__name__)

_GGUF_TOP = {"embed": "token_embd", "final_norm": "output_norm", "head": "output"}
_GGUF_LAYER = {
    "attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "ffn_norm": "ffn_norm", "gate": "ffn_gate",
    "up": "ffn_up", "down": "ffn_down", "post_attn_norm": "post_attention_norm", "post_ffn_norm": "post_ffw_norm",
}  # fmt: skip
_CONFIG_TOP = {"embed": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
_CONFIG_LAYER = {
    "attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
_CONFIG_POST_NORMS = {
    "post_attn_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffn_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class _Names:
    """How a format spells the names of `ModelWeights`."""

    top: Mapping[str, str]
    layers: str
    layer: Mapping[str, str]

    def stored(self, name: str) -> str:
        """The name in the file: `layers.3.q_bias` is `blk.3.attn_q.bias`."""
        bare = name.removesuffix("_bias")
        suffix = "weight" if bare == name else "bias"
        if not bare.startswith("layers."):
            return f"{self.top[bare]}.{suffix}"
        _, layer, part = bare.split(".")
        return f"{self.layers}.{layer}.{self.layer[part]}.{suffix}"


_GGUF_NAMES = _Names(_GGUF_TOP, "blk", _GGUF_LAYER)

_HARMLESS = re.compile(r"(model\.layers\.\d+\.self_attn\.|model\.)rotary_emb\.inv_freq")
"""Buffers that old exports kept; the spec has the frequencies."""

_GGUF_INTERLEAVED = ("llama",)
"""GGUF architectures whose q and k rows are stored as interleaved rotary pairs."""


def load_weights(checkpoint: Checkpoint, spec: DecoderSpec) -> ModelWeights:
    """All weights of the spec, still memory-mapped. Raises CheckpointError naming tensor and file."""
    is_gguf = checkpoint.format == "gguf"
    names = _GGUF_NAMES if is_gguf else _config_names(spec)
    left = dict(checkpoint.tensors)
    weights: dict[str, Weight] = {}
    for name, shape in expected_shapes(spec).items():
        stored_name = names.stored(name)
        tensor = left.pop(stored_name, None)
        if tensor is None:
            raise CheckpointError(
                f"{checkpoint.path}: tensor {stored_name} {list(shape)} is missing"
            )
        if tensor.shape != shape:
            raise CheckpointError(
                f"{tensor.file}: tensor {stored_name} must have the shape {list(shape)}; "
                f"given: {list(tensor.shape)}"
            )
        weights[name] = _weight(name, tensor, spec, is_gguf=is_gguf)
    _check_left(checkpoint, spec, left)
    return ModelWeights(weights)


def config_tensor_name(name: str, spec: DecoderSpec) -> str:
    """What Hugging Face files call the weight of this name."""
    return _config_names(spec).stored(name)


def _weight(name: str, tensor: Tensor, spec: DecoderSpec, *, is_gguf: bool) -> Weight:
    part = name.rpartition(".")[2]
    data, offset = tensor.data, 0.0
    if (
        is_gguf
        and spec.architecture in _GGUF_INTERLEAVED
        and part in ("q", "k", "q_bias", "k_bias")
    ):
        data = _halves_from_pairs(data, tensor, spec.head_dim)
    if not is_gguf and spec.architecture == "gemma3" and part.endswith("norm"):
        offset = 1.0
    return Weight(name, tensor.quant, tensor.shape, data, offset)


def _halves_from_pairs(data: np.ndarray, tensor: Tensor, head_dim: int) -> np.ndarray:
    """Rows of each head from (0, D/2, 1, D/2 + 1, ...) to (0, 1, ..., D - 1).

    Whole rows move, so quantized ones stay as they are. A bias is one row of D numbers a head.
    """
    rows = data.reshape(tensor.shape[0], -1)
    heads = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(data.shape)


def _config_names(spec: DecoderSpec) -> _Names:
    layer = _CONFIG_LAYER | (_CONFIG_POST_NORMS if spec.post_norms else {})
    return _Names(_CONFIG_TOP, "model.layers", layer)


def _check_left(checkpoint: Checkpoint, spec: DecoderSpec, left: dict[str, Tensor]) -> None:
    if checkpoint.format == "gguf":
        left.pop(ROPE_FACTORS, None)
    elif spec.tied_head and "lm_head.weight" in left:
        _check_tied_head(checkpoint, left.pop("lm_head.weight"))
    for name, tensor in left.items():
        if not _HARMLESS.fullmatch(name):
            raise CheckpointError(
                f"{tensor.file}: tensor {name} is not part of a {spec.architecture} model"
            )


def _check_tied_head(checkpoint: Checkpoint, head: Tensor) -> None:
    """A head beside tie_word_embeddings: the config wins, and a head that says otherwise is reported."""
    embedding = checkpoint.tensors["model.embed_tokens.weight"]
    if head.shape != embedding.shape or not np.array_equal(head.data, embedding.data):
        logger.warning(
            "%s: lm_head.weight differs from the embedding, but tie_word_embeddings is true: the embedding is used",
            head.file,
        )
