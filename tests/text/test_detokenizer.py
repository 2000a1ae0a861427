"""Streams of tokens become the text that the whole becomes, whatever the chunks (R31, R33)."""

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from octavo.errors import CheckpointError, PromptError
from octavo.text.detokenizer import Detokenizer
from octavo.text.gguf_tokenizer import gguf_tokenizer_parts
from octavo.text.tokenizer import Tokenizer
from octavo.text.tokenizer_parts import TokenizerParts
from support.tiny_tokenizers import (
    CORPUS,
    END,
    TOOL,
    TURN,
    byte_level_metadata,
    byte_level_tokenizer,
    sentencepiece_tokenizer,
)

REPLACEMENT = "\ufffd"
TINY: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level_tokenizer,
    "prefixed": lambda: sentencepiece_tokenizer(add_dummy_prefix=True),
    "plain": lambda: sentencepiece_tokenizer(add_dummy_prefix=False),
}
TEXTS = (
    "日本語のテキスト", "🎉", "👨‍👩‍👧‍👦 family", "🇫🇷🇩🇪", "e\u0301\u0323 marks", "한국어 텍스트", "𝔘𝔫𝔦",
    "a    b", "   leading", " x", "\ttabs\t\t", "\n\n\nlines\n", "     ", "trailing ",
    "def f():\n        return 1\n        # done\n", "naïve “quotes”", "\u200b", "",
)  # fmt: skip


def stream(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    sizes: Sequence[int] = (1,),
    prompt: Sequence[int] = (),
    *,
    skip: bool = True,
    spaces: bool = True,
) -> list[str]:
    """The pieces of a stream in chunks of these sizes, again and again; the last is of `finish`."""
    detokenizer = Detokenizer(
        tokenizer, prompt, skip_special_tokens=skip, spaces_between_special_tokens=spaces
    )
    pieces, start, turn = [], 0, 0
    while start < len(token_ids):
        size = sizes[turn % len(sizes)]
        pieces.append(detokenizer.add(token_ids[start : start + size]))
        start, turn = start + size, turn + 1
    return [*pieces, detokenizer.finish()]


def sizes() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 5), min_size=1, max_size=5).map(lambda s: s if any(s) else [1])


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Random tokens, many of them bytes, special tokens and parts of characters."""
    troublesome = [*sorted(tokenizer.special_ids)[:5]]
    for text in ("é", "日", "🎉", " ", "  ", "\n", "▁", "▁▁", "a"):
        troublesome += tokenizer.encode(text, add_special_tokens=False)
    troublesome += [i for b in range(0x80, 0x100) if (i := tokenizer.token_id(f"<0x{b:02X}>"))]
    token_id = st.integers(0, tokenizer.vocab_size - 1) | st.sampled_from(troublesome)
    return st.lists(token_id, max_size=25)


@pytest.mark.parametrize("name", TINY)
@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_any_chunks_give_the_whole(name: str, data: st.DataObject) -> None:
    check_any_chunks(TINY[name](), data)


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_any_chunks_give_the_whole_smollm2(smollm2: Tokenizer, data: st.DataObject) -> None:
    check_any_chunks(smollm2, data)


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_any_chunks_give_the_whole_gemma(gemma: Tokenizer, data: st.DataObject) -> None:
    check_any_chunks(gemma, data)


def check_any_chunks(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids, chunks = data.draw(ids_of(tokenizer)), data.draw(sizes())
    skip = data.draw(st.booleans())
    whole = tokenizer.decode(ids, skip)
    pieces = stream(tokenizer, ids, chunks, skip=skip)
    assert "".join(pieces) == whole
    assert "".join(stream(tokenizer, ids, [1], skip=skip)) == whole
    # After any prompt, the output is what it adds to the text. What the prompt alone shows as U+FFFD, the
    # beginning of a character, comes out whole.
    cut = data.draw(st.integers(0, len(ids)))
    after = "".join(stream(tokenizer, ids[cut:], chunks, ids[:cut], skip=skip))
    prompt = tokenizer.decode(ids[:cut], skip)
    begun = len(prompt) - len(prompt.rstrip(REPLACEMENT))
    assert whole in {prompt[: len(prompt) - n] + after for n in range(min(begun, 2) + 1)}


@pytest.mark.parametrize("text", TEXTS)
def test_no_piece_holds_half_a_character(tokenizer: Tokenizer, text: str) -> None:
    """R31, R33: every text comes back, each character in one piece, through real vocabularies."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == text
    assert pieces[-1] == ""
    assert REPLACEMENT not in "".join(pieces)
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == text.encode()


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("text", TEXTS)
def test_no_piece_holds_half_a_character_tiny(name: str, text: str) -> None:
    tokenizer = TINY[name]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == text
    assert REPLACEMENT not in "".join(pieces)


@pytest.mark.parametrize("name", TINY)
@given(text=st.text() | st.lists(st.sampled_from(CORPUS)).map("".join), chunks=sizes())
@settings(deadline=None, max_examples=150)
def test_round_trip(name: str, text: str, chunks: list[int]) -> None:
    tokenizer = TINY[name]()
    if "▁" in text and name != "byte-level":
        text = text.replace("▁", "")  # SentencePiece's mark comes back as a space
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not tokenizer.special_ids & set(ids):
        assert "".join(stream(tokenizer, ids, chunks)) == text


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    ids = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in data]
    if None in ids:  # byte-level: the single characters
        by_bytes = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
        return [by_bytes[bytes([byte])] for byte in data]
    return [i for i in ids if i is not None]


@pytest.mark.parametrize("name", [*TINY, "smollm2", "gemma"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("日本🎉".encode(), ["", "", "日", "", "", "本", "", "", "", "🎉", ""]),
        (b"\xe6\x97", ["", "", REPLACEMENT]),  # cut at the end: one, when it is known
        (b"\xe6\x97a", ["", "", REPLACEMENT + "a", ""]),
        (b"\x80", [REPLACEMENT, ""]),  # never the beginning of a character
        (b"\x80\xe6\x97\xa5", [REPLACEMENT, "", "", "日", ""]),
        ("日".encode() + b"\xe6", ["", "", "日", "", REPLACEMENT]),  # what was complete stays
        (b"\xf0\x9f\xf0\x9f\x8e\x89", ["", "", REPLACEMENT, "", "", "🎉", ""]),
        (b"\x80\xbf", [REPLACEMENT, REPLACEMENT, ""]),
        (b"\xed\xa0\x80", ["", "", REPLACEMENT * 3, ""]),  # a surrogate is no character
    ],
)
def test_bytes_one_by_one(
    name: str, data: bytes, expected: list[str], request: pytest.FixtureRequest
) -> None:
    """R31: byte tokens, whole characters, cut ones, and lone continuation bytes."""
    tokenizer = TINY[name]() if name in TINY else request.getfixturevalue(name)
    ids = byte_ids(tokenizer, data)
    assert stream(tokenizer, ids) == expected
    assert "".join(stream(tokenizer, ids, [len(ids)])) == tokenizer.decode(ids) == "".join(expected)
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == data


def test_pieces_never_begin_with_what_belongs_to_the_last_character() -> None:
    """Tokens that end one character and begin the next."""
    tokenizer = byte_level_tokenizer()
    ids = tokenizer.encode("日日日", add_special_tokens=False)
    assert any(tokenizer.token_bytes(i).startswith(b"\xa5") for i in ids)
    for piece in stream(tokenizer, ids):
        assert set(piece) <= {"日"}


def test_spaces_after_prompts_and_special_tokens() -> None:
    """R33: the first piece keeps its space, unless the text begins here."""
    prefixed = TINY["prefixed"]()
    the = prefixed.encode("The", add_special_tokens=False)
    assert prefixed.token_bytes(the[0]).startswith(b" ")
    bos, eos = prefixed.bos_token_id or 0, prefixed.eos_token_id or 0
    dog = prefixed.encode("dog", add_special_tokens=False)
    assert "".join(stream(prefixed, the)) == "The"
    assert "".join(stream(prefixed, the, prompt=[bos])) == "The"
    assert "".join(stream(prefixed, the, prompt=[bos], skip=False)) == " The"
    assert "".join(stream(prefixed, the, prompt=dog)) == " The"
    assert "".join(stream(prefixed, [*the, eos, *the])) == "The The"
    assert "".join(stream(prefixed, [eos, *the], skip=False)) == "</s> The"
    space = prefixed.encode("dog ", add_special_tokens=False)
    assert "".join(stream(prefixed, the, prompt=space)) == " The"
    assert prefixed.decode([*space, *the]) == "dog  The"


def test_special_tokens_in_the_text() -> None:
    tokenizer = byte_level_tokenizer()
    a = tokenizer.encode("a", add_special_tokens=False)[0]
    ids = [a, 0, 1, 2, a]
    assert "".join(stream(tokenizer, ids)) == "aa"
    for spaces in (True, False):
        shown = "".join(stream(tokenizer, ids, skip=False, spaces=spaces))
        assert shown == f"a{END}{TURN}{TOOL}a" == tokenizer.decode(ids, False, spaces)
    # A special token inside a character cuts it.
    first, *rest = byte_ids(tokenizer, "é".encode())
    assert "".join(stream(tokenizer, [first, 0, *rest], skip=False)) == f"\ufffd{END}\ufffd"
    assert "".join(stream(tokenizer, [first, 0, *rest])) == "é"


@pytest.mark.parametrize("name", TINY)
@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_decode_equals_the_library(name: str, data: st.DataObject) -> None:
    check_against_library(TINY[name](), data)


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_decode_equals_the_library_smollm2(smollm2: Tokenizer, data: st.DataObject) -> None:
    check_against_library(smollm2, data)


@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_decode_equals_the_library_gemma(gemma: Tokenizer, data: st.DataObject) -> None:
    check_against_library(gemma, data)


def check_against_library(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """Always for byte-level vocabularies; for byte-fallback ones where the bytes are characters."""
    ids, skip = data.draw(ids_of(tokenizer)), data.draw(st.booleans())
    ours = tokenizer.decode(ids, skip)
    library = tokenizer._backend
    if isinstance(library.decoder, decoders.ByteLevel) or REPLACEMENT not in ours:
        assert ours == library.decode(ids, skip_special_tokens=skip)


def word_backend(decoder: Any) -> tokenizers.Tokenizer:
    words = ["▁", "▁▁", "▁the", "dog", "▁▁x▁y", "s", "<s>", "<e>", " "]
    backend = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "s"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", "<e>"])
    backend.add_tokens([AddedToken(" ", normalized=False)])
    if decoder is not None:
        backend.decoder = decoder
    return backend


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.Metaspace(),
        decoders.Metaspace(prepend_scheme="never"),
        decoders.Metaspace(prepend_scheme="first"),
        decoders.Fuse(),
        decoders.WordPiece(cleanup=False),
        decoders.Sequence([decoders.Replace("▁", "--"), decoders.Fuse()]),
        decoders.Sequence(
            [decoders.Sequence([decoders.Replace("▁", " ")]), decoders.ByteFallback()]
        ),
    ],
    ids=str,
)
@given(ids=st.lists(st.integers(0, 8), max_size=8), skip=st.booleans(), chunks=sizes())
@settings(deadline=None, max_examples=150)
@example(ids=[6, 1, 2, 3], skip=True, chunks=[1])
def test_other_decoders_equal_the_library(
    decoder: Any, ids: list[int], skip: bool, chunks: list[int]
) -> None:
    backend = word_backend(decoder)
    tokenizer = Tokenizer(TokenizerParts(backend, 9))
    whole = backend.decode(ids, skip_special_tokens=skip)
    assert tokenizer.decode(ids, skip) == whole
    assert "".join(stream(tokenizer, ids, chunks, skip=skip)) == whole


def test_spaces_between_special_tokens() -> None:
    """They matter where tokens are joined by spaces: then added tokens follow each other with or without."""
    tokenizer = Tokenizer(TokenizerParts(word_backend(None), 9))
    ids = [3, 6, 7, 3, 6]
    assert tokenizer.decode(ids, False, True) == "dog <s> <e> dog <s>"
    assert tokenizer.decode(ids, False, False) == "dog <s><e> dog <s>"
    assert tokenizer.decode(ids, True, False) == "dog dog"
    for cut in range(len(ids)):
        pieces = stream(tokenizer, ids[cut:], prompt=ids[:cut], skip=False, spaces=False)
        assert tokenizer.decode(ids[:cut], False, False) + "".join(pieces) == "dog <s><e> dog <s>"


@pytest.mark.parametrize("decoder", [decoders.BPEDecoder(), decoders.CTC()])
def test_decoders_that_cannot_stream_are_refused(decoder: Any) -> None:
    with pytest.raises(CheckpointError, match="decoder"):
        Tokenizer(TokenizerParts(word_backend(decoder), 9))


def test_ids_outside_the_vocabulary(tokenizer: Tokenizer) -> None:
    """A model may have more rows than tokens: such an id has no text. From a user it is a mistake."""
    beyond = tokenizer.vocab_size
    assert stream(tokenizer, [beyond, 2**31 - 1, -1]) == ["", "", "", ""]
    assert tokenizer.token_bytes(beyond) == b""
    assert tokenizer.token_text(-1) == ""
    for wrong in (beyond, -1, 2**40):
        with pytest.raises(PromptError, match=f"from 0 to {beyond - 1}; given: {wrong}"):
            tokenizer.decode([0, wrong])


def test_text_that_is_not_unicode(tokenizer: Tokenizer) -> None:
    with pytest.raises(PromptError, match="surrogate"):
        tokenizer.encode("a\ud800b")


def test_text_that_the_pre_tokenizer_gives_up_on() -> None:
    """The library panics there: neither an Exception nor the end of the tokenizer."""
    tokenizer = Tokenizer(gguf_tokenizer_parts(byte_level_metadata(pre="llama-bpe")))
    with pytest.raises(PromptError, match="12000001 characters"):
        tokenizer.encode(" " * 12_000_000 + "x")
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


def test_token_text_is_for_people(smollm2: Tokenizer) -> None:
    ids = smollm2.encode(" Paris<|im_end|>日", add_special_tokens=False)
    assert smollm2.token_text(ids[0]) == " Paris"
    assert smollm2.token_text(ids[1]) == "<|im_end|>"
    assert REPLACEMENT in smollm2.token_text(ids[2])
    assert (
        unicodedata.normalize("NFC", b"".join(map(smollm2.token_bytes, ids[2:])).decode()) == "日"
    )
