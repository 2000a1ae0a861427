"""The bytes that each token stands for, and texts joined from them.

Text is the concatenation of its tokens' bytes, read as UTF-8; what is not UTF-8 becomes U+FFFD, one for each
maximal invalid part, as the Unicode standard recommends. The `tokenizers` library gives the same text
wherever the bytes are UTF-8. It differs on invalid runs of byte-fallback tokens, where it replaces every
byte of the run, complete characters included; such a text could not be streamed before the run ends.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tokenizers

from octavo.errors import CheckpointError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class PieceTable(dict[int, bytes]):
    """Bytes by token id, made when first asked for: a vocabulary of 262k takes too long at load."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, token_id: int) -> bytes:
        piece = self._make(token_id)
        if piece:  # ids that the vocabulary lacks are not kept: they could be any number
            self[token_id] = piece
        return piece


class TokenPieces:
    """The bytes of every token of a tokenizer. An id that the vocabulary lacks has none.

    Raises CheckpointError for a decoder that does not turn tokens into bytes one by one.
    """

    def __init__(self, backend: tokenizers.Tokenizer, vocab_size: int) -> None:
        self._backend = backend
        self._vocab_size = vocab_size
        added = backend.get_added_tokens_decoder()
        self.added_ids = frozenset(added)
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.joined_by_spaces = backend.decoder is None
        """The library puts spaces between tokens if there is no decoder: here, before each but the first."""
        self._byte_level = False
        self._byte_fallback = False
        self._replacements: list[tuple[str, str]] = []
        self._drops_first_space = self.joined_by_spaces
        self._first_mark = ""
        self._word_part = ""
        """What marks a token that goes on a word (WordPiece); before all others stands a space."""
        if backend.decoder is not None:
            self._read_decoder(_decoder_steps(json.loads(backend.decoder.__getstate__())))
        self.all = PieceTable(self._make)
        self.shown = PieceTable(lambda i: b"" if i in self.special_ids else self.all[i])
        """Without special tokens."""

    @property
    def first_differs(self) -> bool:
        """Whether a token's bytes can be others at the beginning of a text."""
        return self._drops_first_space or self._first_mark != ""

    def first(self, token_id: int) -> bytes:
        """The bytes of a token at the beginning of a text: less the space that encoding put there."""
        if self._first_mark:
            return self._spell((self.token(token_id) or "").replace(self._first_mark, ""))
        return self.all[token_id].removeprefix(b" " if self._drops_first_space else b"")

    def token(self, token_id: int) -> str | None:
        """A token as the vocabulary spells it; None for an id that the vocabulary lacks."""
        return self._backend.id_to_token(token_id) if 0 <= token_id < self._vocab_size else None

    def _make(self, token_id: int) -> bytes:
        token = self.token(token_id)
        if token is None:
            return b""
        return self._spell(f" {token}" if self.joined_by_spaces else token)

    def _spell(self, token: str) -> bytes:
        if self._byte_level:
            values = [_BYTE_OF_CHARACTER.get(character) for character in token]
            # A token with a character outside the alphabet is an added one, in plain text.
            return token.encode() if None in values else bytes(v for v in values if v is not None)
        if self._word_part:
            bare = token.removeprefix(self._word_part)
            return (bare if bare != token else f" {token}").encode()
        for pattern, content in self._replacements:
            token = token.replace(pattern, content)
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.encode()

    def _read_decoder(self, steps: Sequence[Mapping[str, Any]]) -> None:
        fused = False
        for step in steps:
            match step:
                case {"type": "ByteLevel"} if len(steps) == 1:
                    self._byte_level = True
                case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
                    self._replacements.append((pattern, content))
                case {"type": "ByteFallback"}:
                    self._byte_fallback = True
                case {"type": "Fuse"}:
                    fused = True
                case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if fused:
                    self._drops_first_space = True
                case {"type": "WordPiece", "prefix": str(mark)} if len(steps) == 1:
                    # Without the library's guesses at which punctuation stands close to a word.
                    self._word_part, self._drops_first_space = mark, True
                case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme}:
                    self._replacements.append((mark, " "))
                    self._first_mark = "" if scheme == "never" else mark
                case _:
                    raise CheckpointError(f"tokenizer: the decoder step {step} is not supported")


class PieceStream:
    """Joins the bytes of a text's tokens, which may come in parts."""

    def __init__(
        self,
        pieces: TokenPieces,
        *,
        skip_special_tokens: bool,
        spaces_between_special_tokens: bool,
    ) -> None:
        self._pieces = pieces
        self._table = pieces.shown if skip_special_tokens else pieces.all
        self._at_start = pieces.first_differs
        # Only a tokenizer that joins by spaces would put any between special tokens.
        self._glues_added = pieces.joined_by_spaces and not (
            skip_special_tokens or spaces_between_special_tokens
        )
        self._last_was_added = False

    def join(self, token_ids: Iterable[int]) -> bytes:
        """The bytes of the next tokens."""
        if self._at_start or self._glues_added:
            return b"".join([self._next(token_id) for token_id in token_ids])
        table = self._table
        return b"".join([table[token_id] for token_id in token_ids])

    def skip(self, token_ids: Sequence[int]) -> bytes:
        """Pass over tokens before the first `join`. Returns the end of their text, 4 bytes or more if
        there are so many."""
        tail = b""
        for token_id in reversed(token_ids):
            tail = self._table[token_id] + tail
            if len(tail) >= 4:
                break
        self._at_start = self._at_start and not tail
        self._last_was_added = bool(token_ids) and token_ids[-1] in self._pieces.added_ids
        return tail

    def _next(self, token_id: int) -> bytes:
        piece = self._table[token_id]
        is_added = token_id in self._pieces.added_ids
        if piece and self._at_start:
            piece = self._pieces.first(token_id)
            self._at_start = False
        elif self._glues_added and is_added and self._last_was_added:
            piece = piece.removeprefix(b" ")
        self._last_was_added = is_added
        return piece


def _decoder_steps(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for child in decoder["decoders"] for step in _decoder_steps(child)]


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_alphabet()
