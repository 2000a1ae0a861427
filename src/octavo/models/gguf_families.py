"""Specs from GGUF metadata. Every key under the architecture's name is honoured, known to be harmless, or refused."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from octavo.checkpoints.checkpoint import Checkpoint
from octavo.checkpoints.quants import QuantType, dequantize
from octavo.models import rope
from octavo.models.config_families import MAX_HEAD_DIM, MAX_LAYERS
from octavo.models.fields import Fields
from octavo.models.spec import Activation, DecoderSpec, LayerSpec, RopeSpec

ROPE_FACTORS = "rope_freqs.weight"

_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.scale", "rope.dimension_count", "rope.freq_base",
    "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
}  # fmt: skip
"""What `_decoder` honours."""

_HARMLESS = {"rope.scaling.finetuned", "tensor_data_layout"}
"""What says where the weights came from."""

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.causal": (True,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_attn_factor": (1.0,),
}
"""What is accepted only with a value that changes nothing."""


def llama(checkpoint: Checkpoint, fields: Fields) -> DecoderSpec:
    """Llama, Mistral, SmolLM."""
    spec = _decoder(checkpoint, fields, "llama", honoured={"attention.sliding_window"})
    if fields.has("attention.sliding_window"):
        window = fields.size("attention.sliding_window")
        spec = replace(spec, layers=(LayerSpec(rope=0, window=window),) * spec.num_layers)
    return spec


def qwen2(checkpoint: Checkpoint, fields: Fields) -> DecoderSpec:
    """Qwen 2 and 2.5."""
    return _decoder(checkpoint, fields, "qwen2")


def qwen3(checkpoint: Checkpoint, fields: Fields) -> DecoderSpec:
    """Qwen 3, dense."""
    return replace(_decoder(checkpoint, fields, "qwen3"), qk_norm=True)


def gemma3(checkpoint: Checkpoint, fields: Fields) -> DecoderSpec:
    """Gemma 3, text. The norms of these files hold 1 + w already."""
    honoured = {
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "rope.freq_base_swa",
    }
    spec = _decoder(checkpoint, fields, "gemma3", honoured=honoured, theta=1_000_000.0)
    local = LayerSpec(rope=1, window=fields.size("attention.sliding_window"))
    local_rope = rope.plain(fields.positive("rope.freq_base_swa", 10_000.0), spec.head_dim)
    scale = spec.attention_scale
    # The format has no key for query_pre_attn_scalar. Of the published sizes only 27B, the one with
    # 62 layers, has another than the head size: hidden size / heads.
    if spec.num_layers == 62 and not fields.has("attention.scale"):
        scale = (spec.hidden_size / spec.num_heads) ** -0.5
    return replace(
        spec,
        layers=tuple(
            LayerSpec(rope=0) if is_full else local
            for is_full in _global_layers(fields, spec.num_layers)
        ),
        ropes=(spec.ropes[0], local_rope),
        attention_scale=scale,
        activation=Activation.GELU_TANH,
        embedding_multiplier=spec.hidden_size**0.5,
        qk_norm=True,
        post_norms=True,
    )


def _global_layers(fields: Fields, num_layers: int) -> list[bool]:
    """For each layer whether it attends to all positions.

    The file says how often one does, or for each layer whether it is local; else every sixth is global.
    """
    key = "attention.sliding_window_pattern"
    is_local = fields.raw(key)
    if isinstance(is_local, np.ndarray):
        if is_local.dtype != np.bool_ or len(is_local) != num_layers:
            fields.fail(key, f"must be a number or {num_layers} bools")
        return [not local for local in is_local.tolist()]
    pattern = fields.size(key, 6)
    return [i % pattern == pattern - 1 for i in range(num_layers)]


def _decoder(
    checkpoint: Checkpoint,
    fields: Fields,
    architecture: str,
    *,
    honoured: Iterable[str] = (),
    theta: float = rope.DEFAULT_THETA,
) -> DecoderSpec:
    """What all families share. `honoured` are the keys that the family reads itself."""
    _refuse_unknown_keys(checkpoint, fields, architecture, {*_KEYS, *_HARMLESS, *honoured})
    hidden_size = fields.size("embedding_length")
    num_heads = _one_for_all_layers(fields, "attention.head_count")
    num_kv_heads = _one_for_all_layers(fields, "attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        fields.fail(
            "attention.head_count_kv", f"{num_kv_heads} must divide the {num_heads} query heads"
        )
    head_dim = fields.size("attention.key_length", hidden_size // num_heads, most=MAX_HEAD_DIM)
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.size(key, head_dim) != head_dim:
            fields.fail(key, f"must be equal to the head size {head_dim}; given: {fields.raw(key)}")
    if head_dim % 2:
        fields.fail("attention.key_length", f"must be even; given: {head_dim}")
    tensors = checkpoint.tensors
    return DecoderSpec(
        architecture=architecture,
        vocab_size=_vocab_size(checkpoint, fields),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=_one_for_all_layers(fields, "feed_forward_length"),
        norm_eps=fields.positive("attention.layer_norm_rms_epsilon"),
        layers=(LayerSpec(rope=0),) * fields.size("block_count", most=MAX_LAYERS),
        ropes=(_rope(checkpoint, fields, fields.positive("rope.freq_base", theta), head_dim),),
        max_position_embeddings=fields.size("context_length", most=1 << 31),
        attention_scale=fields.positive("attention.scale", head_dim**-0.5),
        qkv_bias="blk.0.attn_q.bias" in tensors,
        output_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_gate.bias" in tensors,
        tied_head="output.weight" not in tensors,
    )


def _refuse_unknown_keys(
    checkpoint: Checkpoint, fields: Fields, architecture: str, known: set[str]
) -> None:
    prefix = f"{architecture}."
    for key in checkpoint.metadata:
        name = key.removeprefix(prefix)
        if name == key or name in known:
            continue
        if name not in _NEUTRAL:
            fields.fail(name, "this key may change the model's answers and is not supported")
        fields.only(name, *_NEUTRAL[name])
    Fields(checkpoint.metadata, str(checkpoint.path)).only("split.count", 0, 1)


def _one_for_all_layers(fields: Fields, key: str, default: int | None = None) -> int:
    """A size that the format also lets vary by layer; if it does, the model is refused."""
    value = fields.raw(key)
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
        if not (value == value[0]).all():
            fields.fail(key, "must be the same for all layers")
        fields = fields.having(key, int(value[0]))
    return fields.size(key, default)


def _vocab_size(checkpoint: Checkpoint, fields: Fields) -> int:
    """The rows of the embedding, with which the metadata must agree."""
    embedding = checkpoint.tensors.get("token_embd.weight")
    if embedding is None:
        fields.fail("vocab_size", "the tensor token_embd.weight is missing")
    rows = embedding.shape[0]
    if fields.size("vocab_size", rows) != rows:
        fields.fail(
            "vocab_size",
            f"must be {rows}, the rows of token_embd.weight; given: {fields.raw('vocab_size')}",
        )
    num_tokens = len(checkpoint.metadata.get("tokenizer.ggml.tokens", ()))
    if num_tokens > rows:
        fields.fail(
            "vocab_size",
            f"the tokenizer has {num_tokens} tokens, token_embd.weight only {rows} rows",
        )
    return rows


def _rope(checkpoint: Checkpoint, fields: Fields, theta: float, head_dim: int) -> RopeSpec:
    default = (
        "linear" if fields.has("rope.scaling.factor") or fields.has("rope.scale_linear") else "none"
    )
    kind = fields.text("rope.scaling.type", default)
    factors = checkpoint.tensors.get(ROPE_FACTORS)
    if factors is not None:
        if factors.quant is not QuantType.F32 or factors.shape != (head_dim // 2,):
            fields.fail(
                "rope", f"{ROPE_FACTORS} must be F32 [{head_dim // 2}]; given: {factors.shape}"
            )
        if kind != "none":
            fields.fail(
                "rope.scaling.type", f"{kind!r} together with {ROPE_FACTORS} is not supported"
            )
        divisors = dequantize(factors.quant, factors.data)[0].astype(np.float64)
        if not (np.isfinite(divisors) & (divisors > 0)).all():
            fields.fail("rope", f"{ROPE_FACTORS} must hold finite numbers above 0")
        return rope.divided(theta, head_dim, divisors.tolist())
    if kind == "none":
        return rope.plain(theta, head_dim)
    factor = fields.positive("rope.scaling.factor", fields.positive("rope.scale_linear", 1.0))
    if kind == "linear":
        return rope.linear(theta, head_dim, factor)
    if kind == "yarn":
        magnitude = fields.positive("rope.scaling.attn_factor", 1.0)
        return rope.yarn(
            theta,
            head_dim,
            factor=factor,
            original_len=fields.size(
                "rope.scaling.original_context_length", fields.size("context_length")
            ),
            beta_fast=fields.positive("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=fields.positive("rope.scaling.yarn_beta_slow", 1.0),
            attention_factor=magnitude * rope.yarn_magnitude(factor),
        )
    return fields.fail(
        "rope.scaling.type", f"{kind!r} is not supported; supported are none, linear, yarn"
    )
