"""Text to token ids and back."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Encoding

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.errors import CheckpointError, PromptError
from octavo.text.gguf_tokenizer import gguf_tokenizer_parts
from octavo.text.huggingface_tokenizer import TOKENIZER_FILE, huggingface_tokenizer_parts
from octavo.text.token_pieces import PieceStream, TokenPieces
from octavo.text.tokenizer_parts import TokenizerParts


class Tokenizer:
    """The tokenizer of one model. Safe to use from several threads.

    The rule for BOS, and for EOS where a model wants it at the end of prompts: `encode` with
    `add_special_tokens` puts it there once, so not if the text has it there already, as a text that a chat
    template rendered does. Without `add_special_tokens` nothing is added; chats are encoded so,
    because a template prints BOS where it belongs.

    Text that spells a special token, like "<|im_end|>", becomes that token, in prompts of users too.
    Raises CheckpointError for parts that do not fit together.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        self._backend = parts.backend
        self._backend.no_truncation()
        self._backend.no_padding()
        self.vocab_size = parts.vocab_size
        """One more than the largest id. A model may have rows beyond it that stand for nothing."""
        self.pieces = TokenPieces(self._backend, self.vocab_size)
        self.bos_token, self.eos_token = parts.bos_token, parts.eos_token
        self.bos_token_id = self._id_of_named("bos_token", parts.bos_token)
        self.eos_token_id = self._id_of_named("eos_token", parts.eos_token)
        self.other_special_tokens = parts.other_special_tokens
        self.chat_templates = parts.chat_templates
        self._prefix, self._suffix = self._surroundings(parts.add_bos, parts.add_eos)

    @property
    def special_ids(self) -> frozenset[int]:
        """The control tokens, which `skip_special_tokens` leaves out."""
        return self.pieces.special_ids

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text.

        Raises PromptError for text that is not valid Unicode, or that the pre-tokenizer gives up on (some do
        at runs of ten million spaces).
        """
        ids = self._encode(text, self._backend.encode_batch_fast).ids
        if not add_special_tokens:
            return ids
        before, after = self._missing(ids)
        return before + ids + after

    def encode_spans(
        self, text: str, add_special_tokens: bool = True
    ) -> list[tuple[int, int, int]]:
        """As `encode`, each id with where it stands in the text: its first character and the one after its last.

        A token that was added stands at 0, 0.
        """
        encoding = self._encode(text, self._backend.encode_batch)
        spans = [(i, *offsets) for i, offsets in zip(encoding.ids, encoding.offsets, strict=True)]
        if not add_special_tokens:
            return spans
        before, after = self._missing(encoding.ids)
        return [(i, 0, 0) for i in before] + spans + [(i, 0, 0) for i in after]

    def _missing(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """What is to be put before and after the tokens of a text."""
        before = [] if ids[: len(self._prefix)] == self._prefix else self._prefix
        after = [] if ids[len(ids) - len(self._suffix) :] == self._suffix else self._suffix
        return before, after

    def _encode(self, text: str, encode_batch: Callable[..., list[Encoding]]) -> Encoding:
        try:
            # As a batch: the library holds the interpreter lock while it encodes a single text.
            (encoding,) = encode_batch([text], add_special_tokens=False)
            return encoding
        except TypeError as error:  # the library's answer to what it cannot take as UTF-8
            raise PromptError(
                "the prompt is not valid Unicode text: it holds a lone surrogate",
                parameter="prompt",
            ) from error
        except BaseException as error:
            # A limit of the library's regular expressions; its class cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            raise PromptError(
                f"the prompt of {len(text)} characters cannot be tokenized: {error}",
                parameter="prompt",
            ) from error

    def decode(
        self,
        token_ids: Sequence[int],
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> str:
        """The text of these tokens. Raises PromptError for an id that is not in the vocabulary."""
        for token_id in token_ids:
            if not 0 <= token_id < self.vocab_size:
                raise PromptError(
                    f"token ids must be from 0 to {self.vocab_size - 1}; given: {token_id}",
                    parameter="tokens",
                    value=token_id,
                )
        stream = PieceStream(
            self.pieces,
            skip_special_tokens=skip_special_tokens,
            spaces_between_special_tokens=spaces_between_special_tokens,
        )
        return stream.join(token_ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token; joined over a text, its raw bytes. Special tokens spell themselves."""
        return self.pieces.all[token_id]

    def token_text(self, token_id: int) -> str:
        """A token by itself as text, for log-probabilities; a part of a character is U+FFFD."""
        return self.pieces.all[token_id].decode(errors="replace")

    def token_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it."""
        return self._backend.token_to_id(token)

    def is_special(self, token_id: int) -> bool:
        """Whether this is a control token."""
        return token_id in self.pieces.special_ids

    def _id_of_named(self, name: str, token: str | None) -> int | None:
        token_id = None if token is None else self._backend.token_to_id(token)
        if token is not None and token_id is None:
            raise CheckpointError(f"tokenizer: {name} {token!r} is not in the vocabulary")
        return token_id

    def _surroundings(
        self, add_bos: bool | None, add_eos: bool | None
    ) -> tuple[list[int], list[int]]:
        """What prompts begin and end with: the post-processor's tokens, corrected by the flags."""
        plain = self._backend.encode("a", add_special_tokens=False).ids
        full = self._backend.encode("a", add_special_tokens=True).ids
        starts = range(len(full) - len(plain) + 1)
        start = next((i for i in starts if full[i : i + len(plain)] == plain), None)
        if start is None:
            raise CheckpointError("tokenizer: the post-processor changes the tokens of the text")
        prefix, suffix = full[:start], full[start + len(plain) :]
        bos, eos = self.bos_token_id, self.eos_token_id
        if add_bos is not None:
            prefix = [i for i in prefix if i != bos]
            if add_bos and bos is not None:
                prefix.insert(0, bos)
        if add_eos is not None:
            suffix = [i for i in suffix if i != eos]
            if add_eos and eos is not None:
                suffix.append(eos)
        return prefix, suffix


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, of a Hugging Face folder, or of a tokenizer.json (whose folder may
    hold settings beside it). Raises CheckpointError naming the file.
    """
    file = path / TOKENIZER_FILE if path.is_dir() else path
    if not file.is_file():
        raise CheckpointError(
            f"{file}: no such file; a tokenizer is a GGUF file or a {TOKENIZER_FILE}"
        )
    if file.suffix == ".json":
        return Tokenizer(huggingface_tokenizer_parts(file))
    metadata = open_checkpoint(file).metadata
    try:
        return Tokenizer(gguf_tokenizer_parts(metadata))
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
