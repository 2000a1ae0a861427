"""Grammars compiled with llguidance for one vocabulary: implements `core.grammar`."""

import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from octavo.core.grammar import Grammar, Matcher
from octavo.core.structured_outputs import StructuredOutputsParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError, UserError
from octavo.text.grammar_source import grammar_source, json_options, json_schema
from octavo.text.schema_mistakes import find_mistake

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from octavo.text.tokenizer import Tokenizer  # late: most engines never need one

MAX_GRAMMARS = 256
"""Compiled grammars that are remembered, the last used ones."""
MAX_SOURCE_CHARS = 2**22
"""Characters of their sources together."""
_MAX_MESSAGE_CHARS = 300
_NUM_SHORT_TEXTS, _SHORT_CHARS = 4096, 64
"""Texts whose tokens are remembered, the last used ones, and how long they may be."""


class TokenMatcher:
    """A place in a grammar. Implements `core.grammar.Matcher`."""

    __slots__ = ("state",)

    def __init__(self, state: "LLMatcher") -> None:
        self.state = state

    def accept(self, token_id: int) -> None:
        """Go on by a token that a mask allowed."""
        self.state.consume_token(token_id)

    @property
    def error(self) -> str | None:
        """Why it can go no further."""
        return self.state.get_error().split("\n")[0] if self.state.is_error() else None


class TokenGrammar:
    """A compiled grammar. Implements `core.grammar.Grammar`."""

    def __init__(self, start: "LLMatcher") -> None:
        self._start = start

    def matcher(self) -> TokenMatcher:
        """A matcher at the beginning."""
        return TokenMatcher(self._start.deep_copy())


class TokenGrammarCompiler:
    """Implements `core.grammar.GrammarCompiler`. The tokenizer is loaded when the first grammar is compiled."""

    def __init__(
        self,
        load_tokenizer: "Callable[[], Tokenizer]",
        *,
        vocab_size: int,
        end_token_ids: Iterable[int],
    ) -> None:
        """`vocab_size`: V, the model's; ids that the tokenizer lacks are never allowed."""
        self._load_tokenizer = load_tokenizer
        self._vocab_size = vocab_size
        self._end_token_ids = sorted(end_token_ids)
        self._mask_words = -(-vocab_size // 32)
        self._tokens: LLTokenizer | None = None
        self._loading = threading.Lock()
        self._known: OrderedDict[StructuredOutputsParams, TokenGrammar] = OrderedDict()
        self._sizes: dict[StructuredOutputsParams, int] = {}
        self._memory = threading.Lock()

    def find(self, params: StructuredOutputsParams) -> Grammar | None:
        """A grammar that has been compiled and is still remembered. At once."""
        with self._memory:
            found = self._known.get(params)
            if found is not None:
                self._known.move_to_end(params)
            return found

    def compile(self, params: StructuredOutputsParams) -> Grammar:
        """The grammar. Raises InvalidParameterError that says what is wrong with it and, in a schema, where."""
        known = self.find(params)
        if known is not None:
            return known
        tokens = self._vocabulary()
        try:
            source = grammar_source(params)
        except ValueError as error:
            raise _mistake(params, str(error), "") from error
        start = _start(tokens, source)
        if start.is_error():
            raise self._explained(params, start.get_error())
        grammar = TokenGrammar(start)
        self._remember(params, grammar, len(source))
        return grammar

    def masks(self, wanted: "Sequence[tuple[Matcher, array[int]]]") -> list[list[bytes]]:
        """See `GrammarCompiler.masks`. About 5 microseconds for each, in the caller's thread."""
        row = _Row(self._mask_words)
        return [self._masks_of(matcher, guess, row) for matcher, guess in wanted]

    def _masks_of(self, matcher: Matcher, guess: "array[int]", row: "_Row") -> list[bytes]:
        assert isinstance(matcher, TokenMatcher), "a matcher of another compiler"
        state = matcher.state
        masks = [row.mask(state)]
        num_taken = 0
        for token_id in guess:
            if not state.try_consume_tokens([token_id]):
                break
            num_taken += 1
            masks.append(row.mask(state))
        if num_taken:
            state.rollback(num_taken)
        return masks + masks[-1:] * (len(guess) + 1 - len(masks))

    def _vocabulary(self) -> "LLTokenizer":
        with self._loading:
            if self._tokens is None:
                _check_library()
                self._tokens = _vocabulary_of(
                    self._load_tokenizer(), self._vocab_size, self._end_token_ids
                )
            return self._tokens

    def _remember(self, params: StructuredOutputsParams, grammar: TokenGrammar, size: int) -> None:
        with self._memory:
            self._known[params] = grammar
            self._sizes[params] = size
            while len(self._known) > 1 and (
                len(self._known) > MAX_GRAMMARS or sum(self._sizes.values()) > MAX_SOURCE_CHARS
            ):
                oldest, _ = self._known.popitem(last=False)
                del self._sizes[oldest]

    def _explained(self, params: StructuredOutputsParams, message: str) -> UserError:
        """What the compiler says, with the place if it is about a schema."""
        if params.json is None:
            return _mistake(params, message, "")
        found = find_mistake(json.loads(json_schema(params)), json_options(params))
        if found is None:
            return _mistake(params, message, "#")
        return _mistake(params, found.message, found.place)


class _Row:
    """Memory that the library writes a mask to."""

    __slots__ = ("_address", "_num_bytes", "_words")

    def __init__(self, num_words: int) -> None:
        self._words: NDArray[np.int32] = np.empty(num_words, np.int32)
        self._address, self._num_bytes = self._words.ctypes.data, self._words.nbytes

    def mask(self, state: "LLMatcher") -> bytes:
        """What may come next in this state."""
        state.unsafe_compute_mask_ptr(self._address, self._num_bytes)
        return self._words.tobytes()


def _check_library() -> None:
    try:
        import_module("llguidance")
    except ImportError as error:
        raise UnsupportedParameterError(
            "structured_outputs: this needs the package llguidance; pip install 'octavo[grammars]'",
            parameter="structured_outputs",
        ) from error


def _vocabulary_of(
    tokenizer: "Tokenizer", vocab_size: int, end_token_ids: list[int]
) -> "LLTokenizer":
    from llguidance import LLTokenizer

    if not end_token_ids:
        raise UnsupportedParameterError(
            "structured_outputs: this model has no end token, so an answer could not end where its grammar does",
            parameter="structured_outputs",
        )
    return LLTokenizer(_Vocabulary(tokenizer, vocab_size, end_token_ids), eos_token=end_token_ids)  # type: ignore[arg-type]


class _Vocabulary:
    """What llguidance wants to know of a tokenizer, under the names that it uses."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: "Tokenizer", vocab_size: int, end_token_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._short = lru_cache(_NUM_SHORT_TEXTS)(self._encode)
        self.eos_token_id = end_token_ids[0]
        self.bos_token_id = tokenizer.bos_token_id
        known = min(vocab_size, tokenizer.vocab_size)
        self.tokens = [tokenizer.token_bytes(i) for i in range(known)]
        self.tokens += [b""] * (vocab_size - known)
        self.special_token_ids = sorted(i for i in tokenizer.special_ids if i < vocab_size)

    def __call__(self, text: str) -> list[int]:
        # What a grammar forces, such as the name of a property, is asked for again in every sequence.
        return self._short(text) if len(text) <= _SHORT_CHARS else self._encode(text)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


def _start(tokens: "LLTokenizer", source: str) -> "LLMatcher":
    from llguidance import LLMatcher

    return LLMatcher(tokens, source, log_level=0)


def _mistake(params: StructuredOutputsParams, message: str, place: str) -> UserError:
    where = f"{place}: " if place else ""
    shown = " ".join(message.split())
    if len(shown) > _MAX_MESSAGE_CHARS:
        shown = shown[:_MAX_MESSAGE_CHARS] + "…"
    kind = UnsupportedParameterError if "Unimplemented" in message else InvalidParameterError
    return kind(
        f"structured_outputs.{params.form}: {where}{shown}",
        parameter="structured_outputs",
        value=place or None,
    )
