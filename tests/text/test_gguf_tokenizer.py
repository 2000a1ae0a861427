"""Tokenizers built from GGUF metadata: pre-tokenizer kinds, token types, flags, and what is refused."""

import logging
from typing import Any

import pytest

from octavo.errors import CheckpointError
from octavo.text.gguf_tokenizer import TokenType, gguf_tokenizer_parts
from octavo.text.pre_tokenizers import PRE_TOKENIZER_KINDS
from octavo.text.tokenizer import Tokenizer
from support.tiny_tokenizers import (
    END,
    TOOL,
    TURN,
    byte_level_metadata,
    byte_level_tokenizer,
    sentencepiece_metadata,
    sentencepiece_tokenizer,
    spelled,
)


def build(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer(gguf_tokenizer_parts(metadata))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpt-2", "Hi|_|_DON|'|T|_it|'s|_1234|_a|/|b|_FooBar|\n\n_|_½"),
        ("smollm", "Hi|_|_DON|'|T|_it|'s|_|1|2|3|4|_a|/|b|_FooBar|\n\n__|½"),
        ("llama-bpe", "Hi|_|_DON|'T|_it|'s|_|123|4|_a|/b|_FooBar|\n\n|_|_|½"),
        ("qwen2", "Hi|_|_DON|'T|_it|'s|_|1|2|3|4|_a|/b|_FooBar|\n\n|_|_|½"),
        ("qwen35", "Hi|_|_DON|'T|_it|'s|_|1|2|3|4|_a|/b|_FooBar|\n\n|_|_|½"),
        ("tekken", "Hi|_|_DON|'T|_it|'s|_|1|2|3|4|_a|/b|_Foo|Bar|\n\n|_|_|½"),
        ("gpt-4o", "Hi|_|_DON'T|_it's|_|123|4|_a|/b|_Foo|Bar|\n\n|_|_|½"),
        ("deepseek-coder", "Hi|_|_DON|'|T|_it|'|s|_|1|2|3|4|_a|/|b|_FooBar|\n|\n|__|½"),
        ("deepseek-v3", "Hi|_|_DON|'T|_it|'s|_|123|4|_a|/b|_FooBar|\n\n|__|½"),
        ("default", "Hi|_|_DON|'|T|_it|'|s|_|123|4|_a|/|b|_FooBar|\n\n_|_|½"),
    ],
)
def test_words_of_each_kind(kind: str, words: str) -> None:
    """One text that tells the kinds apart: contractions, digits, case, slashes, runs of spaces and lines."""
    text = "Hi  DON'T it's 1234 a/b FooBar\n\n  ½"
    split = PRE_TOKENIZER_KINDS[kind].build().pre_tokenize_str(text)
    expected = [spelled(word.replace("_", " ").encode()) for word in words.split("|")]
    assert [word for word, _ in split] == expected


def test_slashes_after_a_line() -> None:
    for kind, expected in (("llama-bpe", "!\n|/b"), ("tekken", "!\n/|b"), ("gpt-4o", "!\n/|b")):
        split = PRE_TOKENIZER_KINDS[kind].build().pre_tokenize_str("!\n/b")
        assert [word for word, _ in split] == [spelled(w.encode()) for w in expected.split("|")]


def test_missing_kind_warns_and_uses_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tokenizer = build(byte_level_metadata(pre=None))
    assert "tokenizer.ggml.pre" in caplog.text
    assert "'default'" in caplog.text
    assert tokenizer.decode(tokenizer.encode("a, b")) == "a, b"


def test_unknown_kind_is_refused_with_the_list() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.pre.*'klingon'.*llama-bpe.*qwen2"):
        build(byte_level_metadata(pre="klingon"))


def test_whole_words_win_over_merges_where_the_kind_says_so() -> None:
    """In Llama 3's vocabulary a word that is a token is that token, though merges lead elsewhere."""
    tokens = byte_level_metadata()["tokenizer.ggml.tokens"] + ["hex"]
    for kind, expected in (("gpt-2", ["he", "x"]), ("llama-bpe", ["hex"])):
        tokenizer = build(byte_level_metadata(pre=kind, tokens=tokens, token_type=None))
        ids = tokenizer.encode("hex", add_special_tokens=False)
        assert [tokenizer.token_text(i) for i in ids] == expected


def test_control_tokens_are_found_in_text_and_others_are_not() -> None:
    """R55: the rule for texts of special tokens in prompts."""
    tokenizer = byte_level_tokenizer()
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.encode(f"{TURN}{END}", add_special_tokens=False) == [1, 0]
    assert tokenizer.encode(f"a{TOOL}b", add_special_tokens=False)[1:-1] == [2]
    assert len(tokenizer.encode("<|no|>", add_special_tokens=False)) == 6
    types = [TokenType.NORMAL] * tokenizer.vocab_size
    plain = build(byte_level_metadata(token_type=types))
    assert plain.special_ids == frozenset()
    assert len(plain.encode(TURN, add_special_tokens=False)) == len(TURN)


def test_user_defined_tokens_are_found_but_not_special() -> None:
    tokenizer = sentencepiece_tokenizer(add_dummy_prefix=False)
    tag = tokenizer.token_id("<tag>")
    assert tag is not None
    assert tag in tokenizer.encode("a<tag>b")
    assert not tokenizer.is_special(tag)
    assert tokenizer.decode([tag], skip_special_tokens=True) == "<tag>"


def test_only_normal_pieces_are_made_by_joining() -> None:
    """Text that spells a byte token, or an unused piece, is neither."""
    tokens = ["<unk>", *"<0x41>ab", "<0", "<0x", "<0x4", "<0x41", "<0x41>", "ab", "ba"]
    byte, unused = tokens.index("<0x41>"), tokens.index("ab")
    types = [TokenType.UNKNOWN] + [TokenType.NORMAL] * (len(tokens) - 1)
    types[byte], types[unused] = TokenType.BYTE, TokenType.UNUSED
    metadata = sentencepiece_metadata(
        add_dummy_prefix=False,
        tokens=tokens,
        token_type=types,
        scores=[-float(i) for i in range(len(tokens))],
    )
    tokenizer = build(metadata)
    ids = tokenizer.encode("<0x41>abab", add_special_tokens=False)
    spelled_ids = [tokenizer.pieces.token(i) for i in ids]
    assert spelled_ids == ["<0x41", ">", "a", "ba", "b"]


def test_the_unknown_token_is_special() -> None:
    tokenizer = sentencepiece_tokenizer(add_dummy_prefix=False)
    unknown = tokenizer.token_id("<unk>")
    assert unknown in tokenizer.special_ids
    assert unknown in tokenizer.encode("a<unk>b")


def test_runs_of_spaces_may_be_written_as_marks() -> None:
    """Files converted long ago have "▁▁" where newer ones have two spaces."""
    metadata = sentencepiece_metadata(add_dummy_prefix=False)
    tokens = ["▁▁" if token == "  " else token for token in metadata["tokenizer.ggml.tokens"]]
    old = build({**metadata, "tokenizer.ggml.tokens": tokens})
    text = "a    b  c"
    assert old.encode(text) == sentencepiece_tokenizer(add_dummy_prefix=False).encode(text)


@pytest.mark.parametrize(
    ("make", "absent"),
    [
        (byte_level_metadata, False),
        (lambda **c: byte_level_metadata(pre="llama-bpe", **c), True),
        (lambda **c: byte_level_metadata(pre="tekken", **c), True),
        (lambda **c: sentencepiece_metadata(add_dummy_prefix=True, **c), True),
    ],
)
def test_bos_and_eos_flags(make: Any, absent: bool) -> None:
    """R55: by the file's flags; without a flag as each kind of vocabulary does."""
    for flag, wanted in ((True, True), (False, False), (None, absent)):
        tokenizer = build(make(add_bos_token=flag))
        ids = tokenizer.encode("hello")
        assert (ids[0] == tokenizer.bos_token_id) is wanted
        assert ids.count(tokenizer.bos_token_id or 0) == int(wanted)
        assert tokenizer.bos_token_id not in tokenizer.encode("hello", add_special_tokens=False)
    with_eos = build(make(add_bos_token=False, add_eos_token=True))
    assert with_eos.encode("hello")[-1] == with_eos.eos_token_id


def test_bos_is_never_there_twice() -> None:
    """R55: a rendered chat, sent as a prompt like any other, begins with BOS already."""
    tokenizer = build(byte_level_metadata(add_bos_token=True, add_eos_token=True))
    once = [1, *tokenizer.encode("hello", add_special_tokens=False), 0]
    assert tokenizer.encode("hello") == once
    assert tokenizer.encode(f"{TURN}hello") == once
    assert tokenizer.encode(f"{TURN}hello{END}") == once
    assert tokenizer.encode("") == [1, 0]


def test_sentencepiece_prefix_comes_after_special_tokens_too() -> None:
    """As llama.cpp and the published tokenizer.json of such models do."""
    tokenizer = sentencepiece_tokenizer(add_dummy_prefix=True)
    after = tokenizer.encode("a</s>b", add_special_tokens=False)
    end = after.index(tokenizer.token_id("</s>") or -1)
    assert after[end + 1 :] == tokenizer.encode("b", add_special_tokens=False)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({}, "tokens: missing"),
        (byte_level_metadata(model="t5"), "'t5'.*gpt2.*llama"),
        (byte_level_metadata(model=None), "None.*gpt2.*llama"),
        (byte_level_metadata(merges=None), "merges: missing"),
        (byte_level_metadata(merges=["no such"]), "merges: "),
        (byte_level_metadata(merges=["nospace"]), "merges: "),
        (byte_level_metadata(token_type=[1, 1]), "token_type: .*has 2"),
        (byte_level_metadata(bos_token_id=10**6), "bos_token_id: must be from 0 to .*1000000"),
        (byte_level_metadata(bos_token_id=None, add_bos_token=True), "bos_token_id is missing"),
        (byte_level_metadata(eos_token_id=None, add_eos_token=True), "eos_token_id is missing"),
        (byte_level_metadata(tokens=["a", "b", "a"], token_type=None, merges=[]), "'a' appears twice"),
        (sentencepiece_metadata(add_dummy_prefix=True, scores=None), "scores: missing"),
        (sentencepiece_metadata(add_dummy_prefix=True, scores=[0.0]), "scores: .*has 1"),
    ],
)  # fmt: skip
def test_refused(metadata: dict[str, Any], problem: str) -> None:
    with pytest.raises(CheckpointError, match=rf"tokenizer\.ggml\..*{problem}"):
        build(metadata)


def test_empty_tokens_get_a_name() -> None:
    tokens = byte_level_metadata()["tokenizer.ggml.tokens"] + ["", ""]
    tokenizer = build(byte_level_metadata(tokens=tokens, token_type=None))
    assert tokenizer.vocab_size == len(tokens)
    assert tokenizer.token_text(len(tokens) - 1) == f"[EMPTY_{len(tokens) - 1}]"
