"""Weights by one set of names, whatever the checkpoint called them, in the form the file holds them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.quants import QuantType, dequantize
from octavo.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor as it lies in the file, memory-mapped.

    `data` holds the raw bytes of the rows, uint8 [rows, bytes per row]; `shape` the numbers it stands for:
    (rows, columns) of a matrix that multiplies from the left (out, in), or (n,) of a vector (rows = 1).
    `offset` is added to each number when it is read (Gemma's Hugging Face norms hold w - 1).
    """

    name: str
    quant: QuantType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    offset: float = 0.0

    def to_float32(self) -> NDArray[np.float32]:
        """The numbers, dequantized exactly as the format defines, float32 [shape]."""
        values = dequantize(self.quant, self.data).reshape(self.shape)
        return values + np.float32(self.offset) if self.offset else values


class ModelWeights(Mapping[str, Weight]):
    """All weights of a model. Complete and of the right shapes, or CheckpointError was raised.

    Names: `embed` [V, E]; `layers.{i}.attn_norm` [E]; `.q` [H*D, E], `.k`, `.v` [K*D, E], `.o` [E, H*D];
    with biases `.q_bias`, `.k_bias`, `.v_bias`, `.o_bias`; with qk_norm `.q_norm`, `.k_norm` [D];
    `.ffn_norm` [E]; `.gate`, `.up` [F, E], `.down` [E, F] with biases `.gate_bias`, `.up_bias`, `.down_bias`;
    with post_norms `.post_attn_norm`, `.post_ffn_norm` [E]; `final_norm` [E]; `head` [V, E] unless tied.
    """

    def __init__(self, weights: Mapping[str, Weight]) -> None:
        self._weights = dict(weights)

    def release(self) -> None:
        """Let go of the file, which is unmapped with the last tensor: names, types and shapes stay, data are empty."""
        self._weights = {
            name: replace(weight, data=np.empty((0, 0), np.uint8))
            for name, weight in self._weights.items()
        }

    def __getitem__(self, name: str) -> Weight:
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def expected_shapes(spec: DecoderSpec) -> dict[str, tuple[int, ...]]:
    """The names and shapes that a model of this spec must have."""
    e, f, v, d = spec.hidden_size, spec.intermediate_size, spec.vocab_size, spec.head_dim
    q, kv = spec.num_heads * d, spec.num_kv_heads * d
    shapes: dict[str, tuple[int, ...]] = {"embed": (v, e), "final_norm": (e,)}
    if not spec.tied_head:
        shapes["head"] = (v, e)
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (e,), "q": (q, e), "k": (kv, e), "v": (kv, e), "o": (e, q),
        "ffn_norm": (e,), "gate": (f, e), "up": (f, e), "down": (e, f),
    }  # fmt: skip
    if spec.qkv_bias:
        layer |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,)}
    if spec.output_bias:
        layer |= {"o_bias": (e,)}
    if spec.mlp_bias:
        layer |= {"gate_bias": (f,), "up_bias": (f,), "down_bias": (e,)}
    if spec.qk_norm:
        layer |= {"q_norm": (d,), "k_norm": (d,)}
    if spec.post_norms:
        layer |= {"post_attn_norm": (e,), "post_ffn_norm": (e,)}
    for i in range(spec.num_layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes
