"""Tiny vocabularies as the metadata of GGUF files, and what a real SentencePiece model says in that form."""

import functools
import io
from typing import Any

import sentencepiece
from tokenizers import pre_tokenizers

from octavo.text.gguf_tokenizer import TokenType, gguf_tokenizer_parts
from octavo.text.token_pieces import _byte_alphabet
from octavo.text.tokenizer import Tokenizer

END, TURN, TOOL = "<|end|>", "<|turn|>", "<|tool call|>"
"""Special tokens of the byte-level vocabulary; the last has a space in its name."""
USER_DEFINED = ("  ", "<tag>")
"""User-defined tokens of the SentencePiece vocabulary without prefix. With one, llama.cpp (whose way with such
files is ours) and SentencePiece differ: where a prefix comes after a user-defined token, or before one."""

CORPUS = (
    "The quick brown fox jumps over the lazy dog. ",
    "  indented\n\tcode = [1, 2, 3]\n        return code\n",
    "naïve café, “quotes” and é combining; ",
    "日本語のテキスト 한국어 텍스트 ",
    "🎉👩‍🚀🇫🇷 emoji 👨‍👩‍👧 ",
    "a    b  c   d ",
)


def spelled(data: bytes) -> str:
    """Bytes as a byte-level vocabulary spells them."""
    characters = {byte: character for character, byte in _byte_alphabet().items()}
    return "".join(characters[byte] for byte in data)


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """Every byte, some merges (within and across characters), and three control tokens.

    Changes name keys without `tokenizer.ggml.`; None takes a key away.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    joined = [
        (b" ", b" "), (b"  ", b"  "), (b" ", b"t"), (b"h", b"e"), (b" t", b"he"), (b"P", b"a"),
        (b"r", b"i"), (b"Pa", b"ri"), (b"Pari", b"s"), (b" ", b"Paris"), (b"\xf0", b"\x9f"),
        (b"\x8e", b"\x89"), (b"\xe6", b"\x97"), (b"\xa5", b"\xe6"), (b"\xa5\xe6", b"\x9c"), (b"\n", b"\n"),
    ]  # fmt: skip
    merges = [f"{spelled(left)} {spelled(right)}" for left, right in joined]
    tokens = [END, TURN, TOOL, *letters, *(merge.replace(" ", "") for merge in merges)]
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3),
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 0,
    }
    return _metadata(values, changes)


@functools.cache
def sentencepiece_model(*, add_dummy_prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """A real SentencePiece BPE model with byte fallback, trained on `CORPUS`."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=add_dummy_prefix,
        user_defined_symbols=[]
        if add_dummy_prefix
        else [token.replace(" ", "▁") for token in USER_DEFINED],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece_metadata(*, add_dummy_prefix: bool, **changes: Any) -> dict[str, Any]:
    """The trained model as converters to GGUF write it."""
    model = sentencepiece_model(add_dummy_prefix=add_dummy_prefix)
    tokens, types = [], []
    for i in range(model.vocab_size()):
        token, kind = model.id_to_piece(i), TokenType.NORMAL
        if model.is_unknown(i):
            kind = TokenType.UNKNOWN
        elif model.is_control(i):
            kind = TokenType.CONTROL
        elif model.is_byte(i):
            kind = TokenType.BYTE
        elif not add_dummy_prefix and token.replace("▁", " ") in USER_DEFINED:
            token, kind = token.replace("▁", " "), TokenType.USER_DEFINED
        tokens.append(token)
        types.append(kind)
    values = {
        "model": "llama",
        "tokens": tokens,
        "scores": [model.get_score(i) for i in range(model.vocab_size())],
        "token_type": types,
        "bos_token_id": model.bos_id(),
        "eos_token_id": model.eos_id(),
        "unknown_token_id": model.unk_id(),
        "add_space_prefix": add_dummy_prefix,
    }
    return _metadata(values, changes)


@functools.cache
def byte_level_tokenizer() -> Tokenizer:
    """The tokenizer of `byte_level_metadata`."""
    return Tokenizer(gguf_tokenizer_parts(byte_level_metadata()))


@functools.cache
def sentencepiece_tokenizer(*, add_dummy_prefix: bool) -> Tokenizer:
    """The tokenizer of `sentencepiece_metadata`."""
    metadata = sentencepiece_metadata(add_dummy_prefix=add_dummy_prefix)
    return Tokenizer(gguf_tokenizer_parts(metadata))


def _metadata(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {**values, **changes}
    return {f"tokenizer.ggml.{key}": v for key, v in merged.items() if v is not None}
