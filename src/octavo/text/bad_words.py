"""Words that must not be generated, as token ids."""

from dataclasses import replace

from octavo.core.sampling_params import SamplingParams
from octavo.errors import InvalidParameterError
from octavo.text.tokenizer import Tokenizer


def with_bad_words(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """`params` with `bad_words` as token sequences in `bad_words_token_ids`.

    Each word is forbidden as it begins a text and as it follows a space. Raises InvalidParameterError for a
    word that has no tokens.
    """
    if not params.bad_words:
        return params
    sequences = dict.fromkeys(params.bad_words_token_ids)
    for word in params.bad_words:
        bare = word.lstrip() or word  # a word of spaces only is meant as it is
        for text in (bare, f" {bare}"):
            token_ids = tuple(tokenizer.encode(text, add_special_tokens=False))
            if not token_ids:
                raise InvalidParameterError(
                    f"bad_words: {word!r} has no tokens in this vocabulary",
                    parameter="bad_words",
                    value=word,
                )
            sequences[token_ids] = None
    return replace(params, bad_words_token_ids=tuple(sequences))
