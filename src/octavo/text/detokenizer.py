"""Token ids to text, as they come."""

from codecs import utf_8_decode
from collections.abc import Sequence

from octavo.text.token_pieces import PieceStream
from octavo.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns the generated tokens of one sequence into text, piece by piece.

    Joined, the pieces are the text of prompt and output less the text of the prompt, whatever the chunks.
    A piece never holds part of a character: bytes that may still become one are held back, and come out
    as one U+FFFD from `finish` if they do not. A character that the prompt began comes out whole.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
        spaces_between_special_tokens: bool,
    ) -> None:
        self._stream = PieceStream(
            tokenizer.pieces,
            skip_special_tokens=skip_special_tokens,
            spaces_between_special_tokens=spaces_between_special_tokens,
        )
        self._pending = _begun_character(self._stream.skip(prompt_token_ids))

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that is complete with these tokens."""
        data = self._pending + self._stream.join(token_ids)
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        return text

    def finish(self) -> str:
        """The end of the text: U+FFFD if it stops within a character, else nothing."""
        text, _ = utf_8_decode(self._pending, "replace", True)
        self._pending = b""
        return text


def _begun_character(data: bytes) -> bytes:
    """The bytes at the end that are the beginning of a character, but not the whole of it."""
    for length in range(1, min(3, len(data)) + 1):
        end = data[-length:]
        if end[0] & 0xC0 != 0x80:  # not a continuation byte: a character can only begin here
            _, used = utf_8_decode(end, "replace", False)
            return end[used:]
    return b""
