"""What a decoder is, as data: every difference between the supported families.

Shape legend, used in every comment of the project: T tokens in the step, S sequences, H query heads,
K KV heads, D head size, E hidden size, F feed-forward size, V vocabulary, L layers, N blocks in the pool,
B block size, M blocks of a sequence.
"""

from dataclasses import dataclass
from enum import Enum


class Activation(str, Enum):
    """The function on the gate half of a gated feed-forward layer."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding, resolved to its numbers so that no backend knows a scaling scheme.

    Pair i of a head is (x[i], x[i + D/2]); at position p it turns by the angle p * inv_freq[i].
    Sine and cosine are multiplied by `attention_factor` (1 except for YaRN).
    Checkpoints that store interleaved pairs (GGUF llama) are un-permuted when they are read.
    """

    inv_freq: tuple[float, ...]
    """D/2 numbers, radians per position, float64."""
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What may differ from layer to layer."""

    rope: int
    """Index into `DecoderSpec.ropes`."""
    window: int | None = None
    """Sliding window W: position p attends to positions p - W + 1 .. p. None: to all."""


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A pre-norm, gated, rotary decoder (Llama and its relatives).

    One layer, with x the residual stream [T, E] in float32:
        a = attention(rms_norm(x, attn_norm));   if post_norms: a = rms_norm(a, post_attn_norm);   x += a
        f = feed_forward(rms_norm(x, ffn_norm)); if post_norms: f = rms_norm(f, post_ffn_norm);    x += f
    rms_norm(x, w) = x / sqrt(mean(x^2) + norm_eps) * w. Gemma's (1 + w) is folded into w when read.
    """

    architecture: str
    vocab_size: int
    """V: rows of the embedding, which may be more than the tokenizer knows."""
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    ropes: tuple[RopeSpec, ...]
    max_position_embeddings: int
    """Longest sequence that the checkpoint was made for."""
    attention_scale: float
    """Factor on q.k, usually D ** -0.5."""
    activation: Activation = Activation.SILU
    embedding_multiplier: float = 1.0
    qk_norm: bool = False
    """RMS norm over each head of q and k, before the rotary embedding (weights `q_norm`, `k_norm` of D)."""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    post_norms: bool = False
    tied_head: bool = False
    """The output head is the embedding; there is no `head` weight."""

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.layers)
