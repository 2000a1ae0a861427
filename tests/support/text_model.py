"""A whole tiny model on disk, made in milliseconds without torch: random weights, a byte-level tokenizer, a chat template.

Every byte is a token and there are four special ones, so any text can be a prompt and any output is text.
"""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import decoders, pre_tokenizers

SPECIAL_TOKENS = ("<unk>", "<bos>", "<eos>", "<|turn|>")
BOS, EOS, TURN = 1, 2, 3
VOCAB_SIZE = len(SPECIAL_TOKENS) + 256
MAX_LEN = 512
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, LAYERS = 32, 4, 2, 8, 48, 2

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant:{% endif %}"
)


@functools.cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="octavo-text-model-")


@functools.cache
def text_model_folder() -> Path:
    """The model's folder; made once a process."""
    folder = Path(_root().name) / "tiny-text"
    write_text_model(folder)
    return folder


def write_text_model(folder: Path, *, generation_config: dict[str, Any] | None = None) -> None:
    """Write config.json, model.safetensors, tokenizer files and generation_config.json."""
    folder.mkdir(parents=True)
    _write_json(folder / "config.json", _config())
    _write_json(
        folder / "generation_config.json", {"eos_token_id": EOS} | (generation_config or {})
    )
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    _write_json(
        folder / "tokenizer_config.json",
        {**names, "add_bos_token": True, "chat_template": CHAT_TEMPLATE},
    )
    _tokenizer().save(str(folder / "tokenizer.json"))
    save_file(_weights(), folder / "model.safetensors")


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": MAX_LEN,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def _tokenizer() -> tokenizers.Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *letters))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _weights() -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] = random.standard_normal((rows, columns), np.float32)
        values /= np.float32(columns**0.5)
        return values

    ones = np.ones(HIDDEN, np.float32)
    weights = {"model.embed_tokens.weight": matrix(VOCAB_SIZE, HIDDEN), "model.norm.weight": ones}
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        weights |= {
            f"{layer}.input_layernorm.weight": ones.copy(),
            f"{layer}.post_attention_layernorm.weight": ones.copy(),
            f"{layer}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{layer}.mlp.gate_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{layer}.mlp.up_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{layer}.mlp.down_proj.weight": matrix(HIDDEN, FEED_FORWARD),
        }
    return weights
