"""From a spec and its weights to a plan: packed matrices and the flat list of ops of one step."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo import _C
from octavo.checkpoints.quants import QuantType
from octavo.models.footprint import int4_type
from octavo.models.spec import Activation, DecoderSpec
from octavo.models.weights import ModelWeights, Weight

TILE = 32
"""Columns of a packed tile."""
NONE = -1
"""In place of a vector or matrix that a model does not have."""
FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)
ACTIVATIONS = {
    Activation.SILU: _C.Activation.SILU,
    Activation.GELU_TANH: _C.Activation.GELU_TANH,
}


def pad_to(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple


def build_plan(
    spec: DecoderSpec,
    weights: ModelWeights,
    shape: _C.ModelShape,
    *,
    dtype: str,
    num_threads: int,
    progress: Callable[[float], None] | None = None,
) -> _C.Plan:
    """Pack all weights and list the ops. `progress` is told the fraction of layers that are done."""
    return PlanBuilder(spec, weights, _C.Plan(shape, num_threads), dtype).build(progress)


class PlanBuilder:
    """Adds a decoder to an empty plan, layer by layer."""

    def __init__(self, spec: DecoderSpec, weights: ModelWeights, plan: _C.Plan, dtype: str) -> None:
        self._spec = spec
        self._weights = weights
        self._plan = plan
        self._dtype = dtype
        self._head_tiles = -(-spec.head_dim // TILE)

    def build(self, progress: Callable[[float], None] | None) -> _C.Plan:
        """The plan, complete."""
        spec, plan = self._spec, self._plan
        for rope in spec.ropes:
            plan.add_rope(list(rope.inv_freq), rope.attention_factor)
        embedding = self._matrix([self._weights["embed"]])
        plan.add_embed(embedding, spec.embedding_multiplier)
        post_norm = NONE
        for i in range(spec.num_layers):
            post_norm = self._add_layer(i, post_norm)
            if progress is not None:
                progress((i + 1) / spec.num_layers)
        if post_norm != NONE:
            plan.add_norm(post_norm, NONE, NONE)
        head = embedding if spec.tied_head else self._matrix([self._weights["head"]])
        plan.set_head(
            head, self._vector(self._weights["final_norm"], pad_to(spec.hidden_size, TILE))
        )
        return plan

    def _add_layer(self, i: int, post_norm: int) -> int:
        """Add layer i. `post_norm` is the last layer's norm that is still to be applied; returns this one's."""
        spec, plan, layer = self._spec, self._plan, self._spec.layers[i]
        qkv = self._qkv_matrix(i)
        output = self._matrix([self._weight(i, "o")], whole_groups=self._heads_fill_groups())
        gate_up = self._matrix([self._weight(i, "gate"), self._weight(i, "up")])
        down = self._matrix([self._weight(i, "down")])

        plan.add_norm(post_norm, self._layer_vector(i, "attn_norm"), qkv)
        plan.add_qkv(
            qkv, self._qkv_bias(i), self._layer_vector(i, "q_norm"), self._layer_vector(i, "k_norm"),
            i, layer.rope,
        )  # fmt: skip
        plan.add_attention(i, layer.window or 0, output)
        plan.add_output(output, self._layer_vector(i, "o_bias"), spec.post_norms)
        attention_norm = self._layer_vector(i, "post_attn_norm")
        plan.add_norm(attention_norm, self._layer_vector(i, "ffn_norm"), gate_up)
        plan.add_gate_up(gate_up, self._gate_up_bias(i), ACTIVATIONS[spec.activation], down)
        plan.add_down(down, self._layer_vector(i, "down_bias"), spec.post_norms)
        return self._layer_vector(i, "post_ffn_norm")

    def _weight(self, layer: int, name: str) -> Weight:
        return self._weights[f"layers.{layer}.{name}"]

    def _heads_fill_groups(self) -> bool:
        """Whether the heads of one KV head are whole groups of 32, which grouped activations need."""
        spec = self._spec
        return spec.num_heads // spec.num_kv_heads * spec.head_dim % TILE == 0

    def _format(self, weight: Weight) -> _C.WeightFormat:
        """The packed form of a matrix, were it alone."""
        if self._dtype == "float32":
            return _C.WeightFormat.F32
        if self._dtype == "int8":
            return _C.WeightFormat.I8
        quant = int4_type(weight) if self._dtype == "int4" else weight.quant
        if self._dtype == "bfloat16" or quant in FLOAT_TYPES or weight.shape[1] % TILE:
            return _C.WeightFormat.BF16
        return _C.packed_format(quant.value)

    def _formats(
        self, parts: Sequence[Weight], *, whole_groups: bool = True
    ) -> list[_C.WeightFormat]:
        """Forms of matrices that read the same activations: if one needs bfloat16, all take it."""
        formats = [self._format(part) for part in parts]
        bf16 = _C.WeightFormat.BF16
        grouped = self._dtype not in ("float32", "int8")
        if bf16 in formats or (grouped and not whole_groups):
            return [bf16] * len(parts)
        return formats

    def _matrix(self, parts: Sequence[Weight], *, whole_groups: bool = True) -> int:
        """One or more matrices of equal shape, their tiles taking turns."""
        rows, columns = parts[0].shape
        tiles = -(-rows // TILE)
        linear = self._plan.add_linear(
            columns, self._formats(parts, whole_groups=whole_groups) * tiles
        )
        for turn, part in enumerate(parts):
            self._pack(linear, part, rows, first_tile=turn, block_stride=0, tile_stride=len(parts))
        return linear

    def _qkv_matrix(self, layer: int) -> int:
        """Query, key and value heads one after another, each padded to whole tiles."""
        parts = [self._weight(layer, name) for name in "qkv"]
        tiles = [part.shape[0] // self._spec.head_dim * self._head_tiles for part in parts]
        formats = [
            fmt for fmt, n in zip(self._formats(parts), tiles, strict=True) for _ in range(n)
        ]
        linear = self._plan.add_linear(self._spec.hidden_size, formats)
        first = 0
        for part, count in zip(parts, tiles, strict=True):
            self._pack(
                linear, part, self._spec.head_dim,
                first_tile=first, block_stride=self._head_tiles, tile_stride=1,
            )  # fmt: skip
            first += count
        return linear

    def _pack(
        self, linear: int, weight: Weight, rows_per_block: int,
        *, first_tile: int, block_stride: int, tile_stride: int,
    ) -> None:  # fmt: skip
        self._plan.pack(
            linear, weight.quant.value, np.ascontiguousarray(weight.data), rows_per_block,
            first_tile, block_stride, tile_stride,
        )  # fmt: skip

    def _vector(self, weight: Weight, padded: int) -> int:
        return self._plan.add_vector(_padded(weight.to_float32(), padded))

    def _layer_vector(self, layer: int, name: str) -> int:
        """A norm or bias of a layer; NONE if the model has none of this name."""
        weight = self._weights.get(f"layers.{layer}.{name}")
        return NONE if weight is None else self._vector(weight, pad_to(weight.shape[0], TILE))

    def _qkv_bias(self, layer: int) -> int:
        if not self._spec.qkv_bias:
            return NONE
        d = self._spec.head_dim
        heads = [
            _padded(head, self._head_tiles * TILE)
            for name in ("q_bias", "k_bias", "v_bias")
            for head in self._weight(layer, name).to_float32().reshape(-1, d)
        ]
        return self._plan.add_vector(np.concatenate(heads))

    def _gate_up_bias(self, layer: int) -> int:
        if not self._spec.mlp_bias:
            return NONE
        padded = pad_to(self._spec.intermediate_size, TILE)
        halves = [
            _padded(self._weight(layer, name).to_float32(), padded).reshape(-1, 1, TILE)
            for name in ("gate_bias", "up_bias")
        ]
        return self._plan.add_vector(np.concatenate(halves, axis=1).reshape(-1))


def _padded(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    out = np.zeros(count, dtype=np.float32)
    out[: len(values)] = values
    return out
