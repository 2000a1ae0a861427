"""Specs from config.json and from GGUF metadata: old and new spellings, defaults, and refusals by name."""

from pathlib import Path
from typing import Any

import pytest

from octavo.checkpoints.checkpoint import Checkpoint, open_checkpoint
from octavo.errors import CheckpointError, UnknownArchitectureError
from octavo.models.families import read_spec
from octavo.models.spec import Activation, DecoderSpec
from support.tiny_gguf import write_gguf
from support.tiny_models import TINY, WINDOW, tiny_folder

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
GEMMA = LLAMA | {"architectures": ["Gemma3ForCausalLM"]}


def spec_of(config: dict[str, Any], **changes: Any) -> DecoderSpec:
    return read_spec(Checkpoint(Path("folder"), "safetensors", config | changes, {}))


def refusal(config: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        spec_of(config, **changes)
    message = str(caught.value)
    assert message.startswith("folder/config.json: ")
    return message.removeprefix("folder/config.json: ")


def windows(spec: DecoderSpec) -> list[int | None]:
    return [layer.window for layer in spec.layers]


def test_llama_defaults() -> None:
    spec = spec_of(LLAMA)
    assert (spec.architecture, spec.num_layers, spec.num_kv_heads, spec.head_dim) == (
        "llama",
        4,
        4,
        16,
    )
    assert (spec.norm_eps, spec.max_position_embeddings, spec.attention_scale) == (1e-6, 2048, 0.25)
    assert spec.activation is Activation.SILU
    assert spec.ropes[0].inv_freq == pytest.approx([10000 ** (-i / 8) for i in range(8)])
    assert not any(
        (
            spec.qkv_bias,
            spec.output_bias,
            spec.mlp_bias,
            spec.qk_norm,
            spec.post_norms,
            spec.tied_head,
        )
    )
    assert windows(spec) == [None] * 4


def test_a_config_without_architectures_goes_by_its_model_type() -> None:
    config = LLAMA | {"architectures": None, "num_key_value_heads": 2}
    assert spec_of(config, model_type="qwen3").architecture == "qwen3"


def test_null_is_the_same_as_missing() -> None:
    nulls = dict.fromkeys(("head_dim", "num_key_value_heads", "rope_scaling", "attention_bias"))
    assert spec_of(LLAMA, **nulls) == spec_of(LLAMA)


@pytest.mark.parametrize("name", TINY)
def test_spelling_of_transformers_4_gives_the_same_spec(name: str) -> None:
    """transformers 5 writes rope_parameters and layer_types; files on the hub have the older keys."""
    checkpoint = open_checkpoint(tiny_folder(name))
    old = dict(checkpoint.metadata)
    rope = old.pop("rope_parameters")
    if "sliding_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    old["rope_theta"] = rope["rope_theta"]
    if rope["rope_type"] != "default":
        scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
        old["rope_scaling"] = scaling | {"type": scaling.pop("rope_type")}
    if name.startswith("qwen"):
        del old["layer_types"]
    spec = read_spec(Checkpoint(checkpoint.path, "safetensors", old, {}))
    assert spec == read_spec(checkpoint)


def test_gemma_pattern_and_layer_types() -> None:
    by_default = spec_of(GEMMA, num_hidden_layers=12, sliding_window=512)
    assert windows(by_default) == ([512] * 5 + [None]) * 2
    assert [layer.rope for layer in by_default.layers] == ([1] * 5 + [0]) * 2
    assert windows(spec_of(GEMMA, sliding_window_pattern=2)) == [4096, None] * 2
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert windows(spec_of(GEMMA, layer_types=types, sliding_window=8)) == [None, 8, 8, None]


def test_gemma_numbers() -> None:
    spec = spec_of(GEMMA, query_pre_attn_scalar=16)
    assert (spec.tied_head, spec.qk_norm, spec.post_norms) == (True, True, True)
    assert (spec.attention_scale, spec.embedding_multiplier, spec.head_dim) == (0.25, 8.0, 256)
    assert spec.activation is Activation.GELU_TANH
    assert [rope.inv_freq[1] for rope in spec.ropes] == pytest.approx(
        [1e6 ** (-1 / 128), 1e4 ** (-1 / 128)]
    )


def test_mistral_window_is_on_unless_it_is_null() -> None:
    mistral = LLAMA | {"architectures": ["MistralForCausalLM"], "num_key_value_heads": 2}
    assert windows(spec_of(mistral)) == [4096] * 4
    assert windows(spec_of(mistral, sliding_window=WINDOW)) == [WINDOW] * 4
    assert windows(spec_of(mistral, sliding_window=None)) == [None] * 4


def test_qwen_window_needs_its_switch() -> None:
    qwen = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 2}
    assert windows(spec_of(qwen, sliding_window=8)) == [None] * 4
    switched = qwen | {"use_sliding_window": True, "sliding_window": 8}
    assert windows(spec_of(switched)) == [None] * 4  # from layer 28 on
    assert windows(spec_of(switched, max_window_layers=3)) == [None, None, None, 8]
    assert windows(spec_of(switched, max_window_layers=0, sliding_window=None)) == [None] * 4


def test_unknown_architectures_are_named_with_the_known() -> None:
    with pytest.raises(UnknownArchitectureError) as caught:
        spec_of(LLAMA, architectures=["SmolLM3ForCausalLM"])
    message = str(caught.value)
    assert "'SmolLM3ForCausalLM' is not supported" in message
    for name in ("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM", "Gemma3ForCausalLM"):
        assert name in message
    with pytest.raises(UnknownArchitectureError, match=r"'gptx' is not supported"):
        spec_of(LLAMA, architectures=[], model_type="gptx")


def test_unknown_gguf_architecture() -> None:
    checkpoint = Checkpoint(Path("m.gguf"), "gguf", {"general.architecture": "mamba"}, {})
    with pytest.raises(UnknownArchitectureError) as caught:
        read_spec(checkpoint)
    assert str(caught.value) == (
        "m.gguf: the architecture 'mamba' is not supported; supported are llama, qwen2, qwen3, gemma3"
    )
    with pytest.raises(CheckpointError, match=r"m.gguf: general.architecture: is missing"):
        read_spec(Checkpoint(Path("m.gguf"), "gguf", {}, {}))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": None}, "hidden_size: is missing"),
    ({"hidden_size": "64"}, "hidden_size: must be an integer from 1 to 16777216; given: '64'"),
    ({"hidden_size": 0}, "hidden_size: must be an integer"),
    ({"hidden_size": True}, "hidden_size: must be an integer"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers: must be an integer from 1 to 1024"),
    ({"num_key_value_heads": 3}, "num_key_value_heads: 3 must divide num_attention_heads 4"),
    ({"head_dim": 15}, "head_dim: must be even; given: 15"),
    ({"rms_norm_eps": -1}, "rms_norm_eps: must be finite and above 0"),
    ({"rms_norm_eps": "x"}, "rms_norm_eps: must be a number; given: 'x'"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings: must be a bool; given: 1"),
    ({"hidden_act": "relu"}, "hidden_act: 'relu' is not supported; supported are silu"),
    ({"hidden_act": 3}, "hidden_act: must be text; given: 3"),
    (
        {"quantization_config": {"quant_method": "gptq"}},
        "quantization_config: {'quant_method': 'gptq'}",
    ),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping: 30.0 is not supported"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0 is not supported"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported"),
    ({"num_local_experts": 8}, "num_local_experts: 8 is not supported"),
    ({"rope_scaling": 3}, "rope_scaling: must be an object; given: 3"),
    (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "rope_scaling: rope_type: 'dynamic' is not supported; supported are default, linear, llama3, yarn",
    ),
    (
        {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}},
        "rope_scaling: rope_type: 'longrope'",
    ),
    ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor: is missing"),
    (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        "rope_scaling: low_freq_factor: is missing",
    ),
    (
        {"rope_parameters": {"rope_type": "default", "mrope_section": [1]}},
        "rope_parameters: mrope_section: this key may change the model's answers",
    ),
    (
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "rope_parameters: full_attention: this key may change",
    ),
    (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
        "rope_parameters: partial_rotary_factor: 0.25 is not supported",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), REFUSED, ids=str)
def test_values_that_cannot_be_honoured_are_refused_by_name(
    changes: dict[str, Any], expected: str
) -> None:
    assert refusal(LLAMA, **changes).startswith(expected)


def test_refusals_of_single_families() -> None:
    mistral = LLAMA | {"architectures": ["MistralForCausalLM"], "num_key_value_heads": 4}
    assert refusal(mistral, layer_types=["full_attention"] * 4).startswith("layer_types: ")
    qwen = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 4}
    assert refusal(qwen, attention_bias=False) == "attention_bias: False is not supported"
    sliding = ["sliding_attention"] * 4
    assert refusal(qwen, layer_types=sliding).startswith("layer_types: has sliding layers, but")
    assert refusal(qwen, layer_types=["full_attention"]).startswith("layer_types: must be 4 of")
    chunked = ["chunked_attention"] * 4
    assert refusal(GEMMA, layer_types=chunked).startswith(
        "layer_types: must be 4 of full_attention"
    )
    assert refusal(GEMMA, use_bidirectional_attention=True).startswith(
        "use_bidirectional_attention"
    )
    flat = {"rope_type": "linear", "factor": 8.0}
    assert refusal(GEMMA, rope_parameters=flat).startswith(
        "rope_parameters: rope_type: must be inside full_attention or sliding_attention"
    )


def gguf_refusal(name: str, tmp_path: Path, **changes: Any) -> str:
    """The error for a tiny model's GGUF file with other metadata; None takes a key away."""
    path = tmp_path / "m.gguf"
    write_gguf(tiny_folder(name), path)
    checkpoint = open_checkpoint(path)
    metadata = dict(checkpoint.metadata) | {k.replace("__", "."): v for k, v in changes.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(CheckpointError) as caught:
        read_spec(Checkpoint(path, "gguf", metadata, checkpoint.tensors))
    return str(caught.value).removeprefix(f"{path}: ")


GGUF_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"llama__block_count": None}, "llama.block_count: is missing"),
    ("llama", {"llama__block_count": "3"}, "llama.block_count: must be an integer from 1 to 1024"),
    (
        "llama",
        {"llama__attention__head_count_kv": 3},
        "llama.attention.head_count_kv: 3 must divide",
    ),
    ("llama", {"llama__vocab_size": 255}, "llama.vocab_size: must be 256, the rows of token_embd"),
    ("llama", {"llama__rope__dimension_count": 8}, "llama.rope.dimension_count: must be equal to"),
    ("llama", {"llama__attention__value_length": 8}, "llama.attention.value_length: must be equal"),
    ("llama", {"llama__expert_count": 8}, "llama.expert_count: 8 is not supported"),
    (
        "llama",
        {"llama__logit_scale": 2.0},
        "llama.logit_scale: this key may change the model's answers",
    ),
    (
        "gemma3",
        {"gemma3__final_logit_softcapping": 30.0},
        "gemma3.final_logit_softcapping: this key may change",
    ),
    ("llama", {"split__count": 3}, "split.count: 3 is not supported"),
    (
        "llama",
        {"llama__rope__scaling__type": "longrope"},
        "llama.rope.scaling.type: 'longrope' is not supported; supported are none, linear, yarn",
    ),
    (
        "llama3-rope",
        {"llama__rope__scaling__type": "linear"},
        "llama.rope.scaling.type: 'linear' together with rope_freqs.weight is not supported",
    ),
    (
        "gemma3",
        {"gemma3__attention__sliding_window": None},
        "gemma3.attention.sliding_window: is missing",
    ),
]


@pytest.mark.parametrize(("name", "changes", "expected"), GGUF_REFUSED, ids=str)
def test_gguf_values_that_cannot_be_honoured_are_refused_by_name(
    name: str, changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    assert gguf_refusal(name, tmp_path, **changes).startswith(expected)


@pytest.mark.model
def test_default_models(smollm2_path: Path, gemma_path: Path) -> None:
    smollm2 = read_spec(open_checkpoint(smollm2_path))
    assert (smollm2.architecture, smollm2.num_layers, smollm2.tied_head) == ("llama", 30, True)
    assert (smollm2.num_heads, smollm2.num_kv_heads, smollm2.head_dim) == (9, 3, 64)
    gemma = read_spec(open_checkpoint(gemma_path))
    assert windows(gemma) == ([512] * 5 + [None]) * 3
    assert (gemma.head_dim, gemma.attention_scale, gemma.vocab_size) == (256, 0.0625, 262144)
