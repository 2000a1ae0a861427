"""A tokenizer from the metadata of a GGUF file."""

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders
from tokenizers.models import BPE

from octavo.errors import CheckpointError
from octavo.text import sentencepiece_bpe
from octavo.text.pre_tokenizers import DEFAULT_KIND, pre_tokenizer_kind
from octavo.text.tokenizer_parts import TokenizerParts

logger = logging.getLogger(__name__)

_PREFIX = "tokenizer.ggml."
_SENTENCEPIECE_IDS = {"unknown": 0, "bos": 1, "eos": 2}
"""What SentencePiece files mean that do not say it."""


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`, the kinds of pieces that SentencePiece has."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def gguf_tokenizer_parts(metadata: Mapping[str, Any]) -> TokenizerParts:
    """The tokenizer that a GGUF file describes. Raises CheckpointError naming the key.

    Control and unknown tokens become special tokens, user-defined ones plain added tokens; all of these
    are looked for in a text before anything else. `add_space_prefix` concerns SentencePiece only.
    """
    vocabulary = _Vocabulary(metadata)
    kind = metadata.get(_PREFIX + "model")
    if kind == "gpt2":
        parts = _byte_level_parts(metadata, vocabulary)
    elif kind == "llama":
        parts = _sentencepiece_parts(metadata, vocabulary)
    else:
        raise CheckpointError(
            f"{_PREFIX}model: unknown tokenizer {kind!r}; supported are gpt2 (byte-level BPE) and llama "
            "(SentencePiece BPE)"
        )
    vocabulary.add_tokens_to(parts.backend)
    return parts


def gguf_chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates in a GGUF file, by name."""
    key = "tokenizer.chat_template"
    templates = {name: metadata.get(f"{key}.{name}") for name in metadata.get(f"{key}s", ())}
    return {
        name: template
        for name, template in {**templates, "default": metadata.get(key)}.items()
        if isinstance(template, str)
    }


class _Vocabulary:
    """Tokens, their types and the ids that have a role."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.is_sentencepiece = metadata.get(_PREFIX + "model") == "llama"
        tokens = self._array("tokens")
        if tokens is None:
            raise CheckpointError(f"{_PREFIX}tokens: missing; the file has no vocabulary")
        self.types: list[int] = self._array("token_type", len(tokens)) or [1] * len(tokens)
        self.tokens = [self._spelled(i, token) for i, token in enumerate(tokens)]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            twice = next(t for i, t in enumerate(self.tokens) if self.ids[t] != i)
            raise CheckpointError(f"{_PREFIX}tokens: {twice!r} appears twice")

    def merges(self) -> list[tuple[str, str]]:
        """The file's merge rules, best first."""
        lines = self._array("merges")
        if lines is None:
            raise CheckpointError(f"{_PREFIX}merges: missing")
        merges = []
        for line in lines:
            left, _, right = line.partition(" ")
            merges.append((left, right))
        return merges

    def joinable(self) -> list[tuple[float, str]]:
        """Score and text of the pieces that come from joining others."""
        scores = self._array("scores", len(self.tokens))
        if scores is None:
            raise CheckpointError(f"{_PREFIX}scores: missing")
        return [
            (score, token)
            for score, token, kind in zip(scores, self.tokens, self.types, strict=True)
            if kind == TokenType.NORMAL
        ]

    def named(self, role: str) -> str | None:
        """The token of a role: bos, eos, unknown, padding."""
        default = _SENTENCEPIECE_IDS.get(role) if self.is_sentencepiece else None
        token_id = self._metadata.get(f"{_PREFIX}{role}_token_id", default)
        if token_id is None:
            return None
        if not 0 <= token_id < len(self.tokens):
            raise CheckpointError(
                f"{_PREFIX}{role}_token_id: must be from 0 to {len(self.tokens) - 1}; given: {token_id}"
            )
        return str(self.tokens[token_id])

    def parts(self, backend: tokenizers.Tokenizer, *, adds_bos: bool) -> TokenizerParts:
        """The backend together with the roles. `adds_bos` holds if the file has no flag for it."""
        add_bos = self._metadata.get(_PREFIX + "add_bos_token")
        add_eos = self._metadata.get(_PREFIX + "add_eos_token")
        bos, eos = self.named("bos"), self.named("eos")
        for role, flag, token in (("bos", add_bos, bos), ("eos", add_eos, eos)):
            if flag and token is None:
                raise CheckpointError(
                    f"{_PREFIX}add_{role}_token is true, but {_PREFIX}{role}_token_id is missing"
                )
        others = {"unk_token": self.named("unknown"), "pad_token": self.named("padding")}
        return TokenizerParts(
            backend,
            len(self.tokens),
            bos_token=bos,
            eos_token=eos,
            add_bos=adds_bos if add_bos is None else bool(add_bos),
            add_eos=bool(add_eos),
            other_special_tokens={n: token for n, token in others.items() if token is not None},
            chat_templates=gguf_chat_templates(self._metadata),
        )

    def add_tokens_to(self, backend: tokenizers.Tokenizer) -> None:
        """Have the tokens found in text that are not made by merging."""
        special, plain = [], []
        for token, kind in zip(self.tokens, self.types, strict=True):
            if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
                special.append(AddedToken(token, normalized=False, special=True))
            elif kind == TokenType.USER_DEFINED:
                plain.append(AddedToken(token, normalized=False))
        backend.add_special_tokens(special)
        backend.add_tokens(plain)

    def _array(self, name: str, length: int | None = None) -> list[Any] | None:
        values = self._metadata.get(_PREFIX + name)
        if values is None:
            return None
        if length is not None and len(values) != length:
            raise CheckpointError(
                f"{_PREFIX}{name}: must have an entry for each of the {length} tokens; has {len(values)}"
            )
        # Numbers come as numpy arrays; Python's own are several times faster to walk.
        return values.tolist() if hasattr(values, "tolist") else list(values)

    def _spelled(self, token_id: int, token: str) -> str:
        if not token:
            return f"[EMPTY_{token_id}]"
        if self.is_sentencepiece and self.types[token_id] == TokenType.USER_DEFINED:
            # Older files write runs of spaces as marks. These tokens are looked for in raw text.
            return token if token.strip(sentencepiece_bpe.SPACE_MARK) else " " * len(token)
        return token


def _byte_level_parts(metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> TokenizerParts:
    name = metadata.get(_PREFIX + "pre")
    if name is None:
        logger.warning(
            "the model file does not name its pre-tokenizer (%spre); using %r, so some texts may get other "
            "tokens than the model was trained with",
            _PREFIX,
            DEFAULT_KIND,
        )
        name = DEFAULT_KIND
    kind = pre_tokenizer_kind(name)
    backend = tokenizers.Tokenizer(
        _bpe(vocabulary, vocabulary.merges(), ignore_merges=kind.ignore_merges)
    )
    backend.pre_tokenizer = kind.build()
    backend.decoder = decoders.ByteLevel()
    # The convention holds only where there is a BOS to add.
    return vocabulary.parts(backend, adds_bos=kind.adds_bos)


def _sentencepiece_parts(metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> TokenizerParts:
    add_space_prefix = bool(metadata.get(_PREFIX + "add_space_prefix", True))
    merges = sentencepiece_bpe.merges_from_scores(vocabulary.joinable())
    backend = tokenizers.Tokenizer(
        _bpe(
            vocabulary,
            merges,
            byte_fallback=TokenType.BYTE in vocabulary.types,
            fuse_unk=True,
            unk_token=vocabulary.named("unknown"),
        )
    )
    backend.normalizer = sentencepiece_bpe.build_normalizer(add_space_prefix=add_space_prefix)
    backend.decoder = sentencepiece_bpe.build_decoder(add_space_prefix=add_space_prefix)
    return vocabulary.parts(backend, adds_bos=True)


def _bpe(vocabulary: _Vocabulary, merges: list[tuple[str, str]], **options: Any) -> BPE:
    try:
        return BPE(vocabulary.ids, merges, **options)
    except Exception as error:  # the library has no class of its own for a merge without a token
        raise CheckpointError(f"{_PREFIX}merges: {error}") from error
