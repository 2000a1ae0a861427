"""bad_words as token sequences."""

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.text.bad_words import with_bad_words
from octavo.text.tokenizer import Tokenizer
from support.tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer


def test_with_and_without_a_leading_space(tokenizer: Tokenizer) -> None:
    params = with_bad_words(SamplingParams(bad_words=("Paris", " London ", "日")), tokenizer)
    texts = [tokenizer.decode(ids) for ids in params.bad_words_token_ids]
    assert texts == ["Paris", " Paris", "London ", " London ", "日", " 日"]
    for ids in params.bad_words_token_ids:
        assert tokenizer.bos_token_id not in ids


def test_single_tokens_of_the_real_vocabulary(smollm2: Tokenizer) -> None:
    params = with_bad_words(SamplingParams(bad_words=("world",)), smollm2)
    assert (905,) in params.bad_words_token_ids  # " world"


def test_a_word_of_spaces_is_meant_as_it_is() -> None:
    tokenizer = byte_level_tokenizer()
    params = with_bad_words(SamplingParams(bad_words=(" ",)), tokenizer)
    assert [tokenizer.decode(ids) for ids in params.bad_words_token_ids] == [" ", "  "]


def test_doing_it_twice_changes_nothing() -> None:
    tokenizer = sentencepiece_tokenizer(add_dummy_prefix=True)
    once = with_bad_words(SamplingParams(bad_words=("fox", "fox", "dog")), tokenizer)
    assert with_bad_words(once, tokenizer) == once
    assert len(set(once.bad_words_token_ids)) == len(once.bad_words_token_ids) == 4


def test_none() -> None:
    params = SamplingParams()
    assert with_bad_words(params, byte_level_tokenizer()) is params


@pytest.mark.parametrize("word", ["\ud800"])
def test_a_word_that_is_not_unicode(word: str) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        with_bad_words(SamplingParams(bad_words=(word,)), byte_level_tokenizer())
