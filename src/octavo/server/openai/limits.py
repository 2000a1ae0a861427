"""What a single request may cost at most, so that none makes the others wait for seconds or takes gigabytes.

Lengths of lists are limits of the request model's fields; the functions check what only all of a request shows.
"""

from collections.abc import Sequence

from octavo.core.sampling_params import SamplingParams
from octavo.errors import ContextLengthError, InvalidParameterError

MAX_FIELDS = 1000
"""Fields of a request. Each that is not known is named in a header and in the log."""
MAX_MESSAGES = 2**14
"""`messages`."""
MAX_TOOLS = 4096
"""`tools`."""
MAX_DOCUMENTS = 4096
"""`documents`."""
MAX_TEMPLATE_KWARGS = 256
"""Names in `chat_template_kwargs`."""
MAX_ALLOWED_TOKEN_IDS = 2**18
"""`allowed_token_ids`: the largest vocabularies have about as many."""
MAX_LOGIT_BIASES = 2**16
"""`logit_bias`."""
MAX_STOP_TOKEN_IDS = 4096
"""`stop_token_ids`."""
MAX_BAD_WORDS = 1024
"""`bad_words`."""
MAX_STOPS = 256
"""Strings in `stop`. Each is searched in every choice, a character at a time."""
MAX_WORDS_LEN = 2**13
"""Characters of all stop strings together, and of all bad words."""
MAX_CHOICES = 2**14
"""Prompts times `n`. Each is a sequence with its own blocks and state."""
MAX_LISTED_IDS = 2**22
"""Prompts times the token ids in `allowed_token_ids`, `logit_bias` and `bad_words`: each prompt takes a copy to the engine."""
MAX_CHARS_PER_TOKEN = 256
"""Characters of a text for each token of the context. A longer one is refused before its tokens are counted: that
takes a second and 300 MB for every two million characters. No vocabulary has tokens that long."""
MAX_PROMPT_LOGPROBS = 2**21
"""Log-probabilities of prompts, which are all in memory at once, with about 250 bytes each in either process."""
MAX_LOGPROBS = 2**24
"""Log-probabilities of generated tokens, which come one by one: 340 tokens with a vocabulary of 49,152 each."""


def check_text_len(text: str, max_model_len: int) -> None:
    """Raise ContextLengthError for a text that is certainly too long, whatever its tokens are."""
    if len(text) > max_model_len * MAX_CHARS_PER_TOKEN:
        raise ContextLengthError(
            f"This model's maximum context length is {max_model_len} tokens. However, you sent a text of "
            f"{len(text)} characters, more than {MAX_CHARS_PER_TOKEN} for each token. "
            "Please reduce the length of the messages.",
            parameter="prompt",
            value=len(text),
        )


def check_words_len(name: str, words: Sequence[str]) -> None:
    """Raise InvalidParameterError if the strings of a parameter are too long together."""
    length = sum(map(len, words))
    if length > MAX_WORDS_LEN:
        raise InvalidParameterError(
            f"{name} may have at most {MAX_WORDS_LEN} characters in all; given: {length}",
            parameter=name,
            value=length,
        )


def check_num_choices(num_prompts: int, n: int) -> None:
    """Raise InvalidParameterError for a request of too many sequences."""
    if num_prompts * n > MAX_CHOICES:
        raise InvalidParameterError(
            f"prompts times n must be at most {MAX_CHOICES}; given: {num_prompts} x {n}",
            parameter="n",
            value=n,
        )


def check_listed_ids(params: SamplingParams, num_prompts: int) -> None:
    """Raise InvalidParameterError if long lists of ids go with many prompts."""
    words = sum(map(len, params.bad_words_token_ids))
    num_ids = len(params.allowed_token_ids or ()) + len(params.logit_bias) + words
    if num_prompts * num_ids > MAX_LISTED_IDS:
        raise InvalidParameterError(
            "prompts times the ids in allowed_token_ids, logit_bias and bad_words must be at most "
            f"{MAX_LISTED_IDS}; given: {num_prompts} x {num_ids}",
            parameter="prompt",
            value=num_prompts,
        )


def check_logprobs(
    params: SamplingParams, num_prompt_tokens: int, num_new_tokens: int, vocab_size: int
) -> None:
    """Raise InvalidParameterError if more log-probabilities may have to be reported than memory is meant for.

    `num_new_tokens`: most that all choices of all prompts may generate.
    """
    for name, wanted, num_tokens, limit in (
        ("prompt_logprobs", params.prompt_logprobs, num_prompt_tokens, MAX_PROMPT_LOGPROBS),
        ("logprobs", params.logprobs, num_new_tokens, MAX_LOGPROBS),
    ):
        if wanted is None:
            continue
        num_each = 1 + (vocab_size if wanted == -1 else wanted)
        if num_tokens * num_each > limit:
            raise InvalidParameterError(
                f"{name}: at most {limit} log-probabilities are reported to a request, the tokens' own included; "
                f"this one may need {num_each} for each of {num_tokens} tokens; ask for fewer, or send less at once",
                parameter=name,
                value=wanted,
            )
