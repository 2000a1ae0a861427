"""Text encoders of the BERT family: what they are, and their weights. They make embeddings, never text."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.checkpoint import Checkpoint, open_checkpoint
from octavo.checkpoints.json_object import read_json_object
from octavo.checkpoints.quants import dequantize
from octavo.errors import CheckpointError
from octavo.models.fields import Fields

ARCHITECTURES = ("BertModel",)
"""By the first of config.json's `architectures`."""

Floats = NDArray[np.float32]

_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_LINEARS = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
}  # fmt: skip
_NORMS = {"attn_norm": "attention.output.LayerNorm", "ffn_norm": "output.LayerNorm"}
_UNUSED = ("pooler.", "embeddings.position_ids")
"""A head for another purpose, and numbers that count from 0."""


class EncoderPooling(str, Enum):
    """How the states of all tokens become one vector (sentence-transformers' `1_Pooling`)."""

    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """A post-norm bidirectional encoder with learned positions (BERT, Devlin et al. 2018).

    x = norm(word + position + type embedding); in each layer
        x = norm(x + attention(x)) and x = norm(x + down(gelu(up(x)))),
    where norm is a layer norm with bias and gelu the exact one.
    """

    vocab_size: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    num_layers: int
    norm_eps: float
    max_len: int
    """Most tokens of a text, those around it included."""
    pooling: EncoderPooling
    normalized: bool
    """Whether its vectors are meant to have the length 1."""

    @property
    def head_dim(self) -> int:
        """D."""
        return self.hidden_size // self.num_heads


@dataclass(frozen=True, slots=True)
class Encoder:
    """A spec and its weights in float32: `word_embeddings`, `position_embeddings`, `token_type_embeddings`, `norm` and
    `norm_bias`; `layers.{i}.` `q k v o up down` [out, in], `attn_norm` and `ffn_norm`, each with a `_bias`.
    """

    name: str
    spec: EncoderSpec
    weights: Mapping[str, Floats]

    @property
    def num_bytes(self) -> int:
        """Of the weights."""
        return sum(weight.nbytes for weight in self.weights.values())


def is_encoder(path: Path) -> bool:
    """Whether this is the folder of an encoder. Raises CheckpointError for a config.json that cannot be read."""
    config = path / "config.json"
    if not config.is_file():
        return False
    names = read_json_object(config).get("architectures")
    return isinstance(names, list) and bool(names) and names[0] in ARCHITECTURES


def load_encoder(path: Path) -> Encoder:
    """The encoder of a folder, read into memory. Raises CheckpointError naming file and field or tensor."""
    checkpoint = open_checkpoint(path)
    spec = _read_spec(checkpoint)
    return Encoder(path.resolve().name, spec, _read_weights(checkpoint, spec))


def _read_spec(checkpoint: Checkpoint) -> EncoderSpec:
    config = Fields(checkpoint.metadata, str(checkpoint.path / "config.json"))
    config.only("hidden_act", "gelu")
    config.only("position_embedding_type", "absolute")
    config.only("is_decoder", False)
    config.only("add_cross_attention", False)
    hidden_size, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    if hidden_size % num_heads:
        config.fail("num_attention_heads", f"must divide the hidden size {hidden_size}")
    pooling, normalized, max_len = _sentence_settings(checkpoint.path)
    positions = config.size("max_position_embeddings")
    return EncoderSpec(
        vocab_size=config.size("vocab_size"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        intermediate_size=config.size("intermediate_size"),
        num_layers=config.size("num_hidden_layers"),
        norm_eps=config.positive("layer_norm_eps"),
        max_len=min(positions, max_len or positions),
        pooling=pooling,
        normalized=normalized,
    )


def _sentence_settings(folder: Path) -> tuple[EncoderPooling, bool, int | None]:
    """What sentence-transformers' files say: pooling, whether vectors are normalized, most tokens."""
    modules_file = folder / "modules.json"
    text = modules_file.read_text("utf-8") if modules_file.is_file() else ""
    pooling = EncoderPooling.MEAN
    pooling_file = folder / "1_Pooling" / "config.json"
    if pooling_file.is_file():
        found = read_json_object(pooling_file)
        modes = [
            name
            for name, value in found.items()
            if name.startswith("pooling_mode") and value is True
        ]
        known = {
            "pooling_mode_mean_tokens": EncoderPooling.MEAN,
            "pooling_mode_cls_token": EncoderPooling.CLS,
        }
        if len(modes) != 1 or modes[0] not in known:
            raise CheckpointError(
                f"{pooling_file}: {', '.join(modes) or 'no mode'} is not supported"
            )
        pooling = known[modes[0]]
    lengths_file = folder / "sentence_bert_config.json"
    lengths = read_json_object(lengths_file) if lengths_file.is_file() else {}
    max_len = Fields(lengths, str(lengths_file)).size("max_seq_length", 1 << 20)
    return pooling, not text or ".Normalize" in text, max_len


def _read_weights(checkpoint: Checkpoint, spec: EncoderSpec) -> dict[str, Floats]:
    e, f = spec.hidden_size, spec.intermediate_size
    prefix = "bert." if "bert.embeddings.LayerNorm.weight" in checkpoint.tensors else ""
    weights: dict[str, Floats] = {}

    def read(name: str, stored: str, shape: tuple[int, ...]) -> None:
        tensor = checkpoint.tensors.get(prefix + stored)
        given = None if tensor is None else tensor.shape
        if tensor is None or (given != shape and (name != "position_embeddings")):
            raise CheckpointError(
                f"{checkpoint.path}: tensor {prefix + stored} must have the shape {list(shape)}; given: {given}"
            )
        weights[name] = dequantize(tensor.quant, tensor.data).reshape(tensor.shape)

    sizes = (spec.vocab_size, spec.max_len, checkpoint.metadata.get("type_vocab_size", 2))
    for name, size in zip(_EMBEDDINGS, sizes, strict=True):
        read(name, f"embeddings.{name}.weight", (size, e))
    read("norm", "embeddings.LayerNorm.weight", (e,))
    read("norm_bias", "embeddings.LayerNorm.bias", (e,))
    shapes = {"up": (f, e), "down": (e, f)}
    for i in range(spec.num_layers):
        for name, stored in _LINEARS.items():
            shape = shapes.get(name, (e, e))
            read(f"layers.{i}.{name}", f"encoder.layer.{i}.{stored}.weight", shape)
            read(f"layers.{i}.{name}_bias", f"encoder.layer.{i}.{stored}.bias", shape[:1])
        for name, stored in _NORMS.items():
            read(f"layers.{i}.{name}", f"encoder.layer.{i}.{stored}.weight", (e,))
            read(f"layers.{i}.{name}_bias", f"encoder.layer.{i}.{stored}.bias", (e,))
    return weights
