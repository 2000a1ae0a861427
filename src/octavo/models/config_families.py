"""Specs from config.json. Defaults of missing keys are those of the transformers classes."""

from dataclasses import replace

from octavo.models import rope
from octavo.models.fields import Fields
from octavo.models.spec import Activation, DecoderSpec, LayerSpec, RopeSpec

MAX_LAYERS = 1024
MAX_HEAD_DIM = 4096

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "quantization_config": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "use_bidirectional_attention": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1, 1.0),
    "num_local_experts": (0, 1),
    "num_experts": (0, 1),
    "logit_scale": (1, 1.0),
    "clip_qkv": (),
    "no_rope_layers": (),
    "rope_interleaved": (False,),
}
"""Keys that change answers where some model honours them, with the values that change nothing."""


def llama(config: Fields) -> DecoderSpec:
    """Llama 1, 2, 3 and 3.x, and SmolLM and SmolLM2, which say they are Llama."""
    spec = _decoder(config, "llama", kv_heads=None, max_len=2048)
    bias = config.flag("attention_bias", False)
    return replace(spec, qkv_bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias", False))


def mistral(config: Fields) -> DecoderSpec:
    """Llama with a sliding window on all layers."""
    spec = _decoder(config, "mistral", kv_heads=8, max_len=131072)
    config.only("layer_types")
    config.only("attention_bias", False)
    return replace(spec, layers=(LayerSpec(rope=0, window=_window(config)),) * spec.num_layers)


def qwen2(config: Fields) -> DecoderSpec:
    """Llama with biases on q, k and v."""
    config.only("attention_bias", True)
    spec = _decoder(config, "qwen2", kv_heads=32, max_len=32768)
    return replace(spec, qkv_bias=True, layers=_qwen_layers(config, spec.num_layers))


def qwen3(config: Fields) -> DecoderSpec:
    """Llama with norms on the heads of q and k, and a head size of its own."""
    spec = _decoder(config, "qwen3", kv_heads=32, max_len=32768, head_dim=128)
    bias = config.flag("attention_bias", False)
    layers = _qwen_layers(config, spec.num_layers)
    return replace(spec, qk_norm=True, qkv_bias=bias, output_bias=bias, layers=layers)


def gemma3(config: Fields) -> DecoderSpec:
    """Gemma 3, text: norms on both sides, five local layers to a global one, each with a rope of its own."""
    spec = _decoder(
        config, "gemma3", kv_heads=4, max_len=131072, head_dim=256, tied=True,
        activation=("hidden_activation", "gelu_pytorch_tanh"), heads=8, vocab=262208, layers=26,
        hidden=2304, intermediate=9216,
    )  # fmt: skip
    bias = config.flag("attention_bias", False)
    pattern = config.size("sliding_window_pattern", 6)
    types = _layer_types(config, spec.num_layers) or [
        i % pattern == pattern - 1 for i in range(spec.num_layers)
    ]
    local = LayerSpec(rope=1, window=_window(config))
    return replace(
        spec,
        layers=tuple(LayerSpec(rope=0) if is_full else local for is_full in types),
        ropes=_gemma3_ropes(config, spec),
        attention_scale=config.positive("query_pre_attn_scalar", 256.0) ** -0.5,
        embedding_multiplier=spec.hidden_size**0.5,
        qk_norm=True,
        post_norms=True,
        qkv_bias=bias,
        output_bias=bias,
    )


def _decoder(
    config: Fields,
    architecture: str,
    *,
    kv_heads: int | None,
    max_len: int,
    head_dim: int | None = None,
    tied: bool = False,
    activation: tuple[str, str] = ("hidden_act", "silu"),
    heads: int | None = None,
    vocab: int | None = None,
    layers: int | None = None,
    hidden: int | None = None,
    intermediate: int | None = None,
) -> DecoderSpec:
    """What all families share; the keywords are the defaults of missing keys."""
    for key, neutral in _NEUTRAL.items():
        config.only(key, *neutral)
    hidden_size = config.size("hidden_size", hidden)
    num_heads = config.size("num_attention_heads", heads)
    kv_default = (
        num_heads if kv_heads is None or config.is_null("num_key_value_heads") else kv_heads
    )
    num_kv_heads = config.size("num_key_value_heads", kv_default)
    if num_heads % num_kv_heads:
        config.fail(
            "num_key_value_heads", f"{num_kv_heads} must divide num_attention_heads {num_heads}"
        )
    head_size = config.size("head_dim", head_dim or hidden_size // num_heads, most=MAX_HEAD_DIM)
    if head_size % 2:
        config.fail("head_dim", f"must be even; given: {head_size}")
    max_len = config.size("max_position_embeddings", max_len, most=1 << 31)
    act_key, act_default = activation
    return DecoderSpec(
        architecture=architecture,
        vocab_size=config.size("vocab_size", vocab),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_size,
        intermediate_size=config.size("intermediate_size", intermediate),
        norm_eps=config.positive("rms_norm_eps", 1e-6),
        layers=(LayerSpec(rope=0),) * config.size("num_hidden_layers", layers, most=MAX_LAYERS),
        ropes=() if architecture == "gemma3" else (_single_rope(config, head_size, max_len),),
        max_position_embeddings=max_len,
        attention_scale=head_size**-0.5,
        activation=_activation(config, act_key, act_default),
        tied_head=config.flag("tie_word_embeddings", tied),
    )


def _activation(config: Fields, key: str, default: str) -> Activation:
    name = config.text(key, default)
    if name not in _ACTIVATIONS:
        config.fail(key, f"{name!r} is not supported; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _single_rope(config: Fields, head_dim: int, max_len: int) -> RopeSpec:
    """From `rope_scaling` beside `rope_theta`, or from `rope_parameters`, which holds both."""
    params = config.child("rope_scaling" if config.raw("rope_scaling") else "rope_parameters")
    theta = config.positive("rope_theta", rope.DEFAULT_THETA)
    # Some configs keep the original length beside the object; it goes first.
    if config.has("original_max_position_embeddings"):
        params = params.having(
            "original_max_position_embeddings", config.size("original_max_position_embeddings")
        )
    return rope.from_config(params, theta=theta, head_dim=head_dim, max_len=max_len)


def _gemma3_ropes(config: Fields, spec: DecoderSpec) -> tuple[RopeSpec, RopeSpec]:
    """The rope of global layers, which alone is scaled, and that of local ones."""
    params = config.child("rope_parameters")
    for key in params.keys():  # noqa: SIM118  (Fields is no mapping)
        if key not in ("full_attention", "sliding_attention"):
            params.fail(key, "must be inside full_attention or sliding_attention")
    ropes = []
    for kind, theta_key, theta in (
        ("full_attention", "rope_theta", 1_000_000.0),
        ("sliding_attention", "rope_local_base_freq", 10_000.0),
    ):
        own = params.child(kind)
        if kind == "full_attention" and config.raw("rope_scaling"):
            own = config.child("rope_scaling")
        default_theta = config.positive(theta_key, theta)
        ropes.append(
            rope.from_config(
                own,
                theta=default_theta,
                head_dim=spec.head_dim,
                max_len=spec.max_position_embeddings,
            )
        )
    return ropes[0], ropes[1]


def _qwen_layers(config: Fields, num_layers: int) -> tuple[LayerSpec, ...]:
    """The window, if it is in use, holds for layers from `max_window_layers` on."""
    types = _layer_types(config, num_layers)
    if not config.flag("use_sliding_window", False):
        if types and not all(types):
            config.fail("layer_types", "has sliding layers, but use_sliding_window is false")
        return (LayerSpec(rope=0),) * num_layers
    window = _window(config)
    first = config.raw("max_window_layers")
    first = 28 if first is None else first
    if not isinstance(first, int) or first < 0:
        config.fail("max_window_layers", f"must be an integer from 0; given: {first!r}")
    types = types or [i < first for i in range(num_layers)]
    return tuple(LayerSpec(rope=0, window=None if is_full else window) for is_full in types)


def _window(config: Fields) -> int | None:
    """Only an explicit null turns the window off: the classes' default is 4096."""
    return None if config.is_null("sliding_window") else config.size("sliding_window", 4096)


def _layer_types(config: Fields, num_layers: int) -> list[bool] | None:
    """For each layer whether it attends to all positions, if the config says so."""
    types = config.raw("layer_types")
    if types is None:
        return None
    known = ("full_attention", "sliding_attention")
    if (
        not isinstance(types, list)
        or len(types) != num_layers
        or any(kind not in known for kind in types)
    ):
        config.fail(
            "layer_types", f"must be {num_layers} of {' or '.join(known)}; given: {types!r}"
        )
    return [kind == "full_attention" for kind in types]
