"""Token ids of prompts: made flat, and checked against the vocabulary."""

from array import array
from collections.abc import Sequence

from octavo.errors import PromptError


def token_id_array(token_ids: "Sequence[int] | array[int]") -> "array[int]":
    """The ids as int32. Raises PromptError for what is not a token id at all."""
    if isinstance(token_ids, array) and token_ids.typecode == "i":
        return token_ids
    try:
        return array("i", token_ids)
    except (TypeError, OverflowError):
        bad = next(i for i in token_ids if not isinstance(i, int) or not -(2**31) <= i < 2**31)
        raise PromptError(
            f"prompt must hold token ids; given: {bad!r}", parameter="prompt", value=bad
        ) from None


def check_token_ids(token_ids: "array[int]", vocab_size: int) -> None:
    """Raise PromptError for token ids that the model does not have."""
    if not token_ids:
        return  # the scheduler says what an empty prompt lacks
    low, high = min(token_ids), max(token_ids)
    if low < 0 or high >= vocab_size:
        bad = low if low < 0 else high
        raise PromptError(
            f"prompt must hold token ids from 0 to {vocab_size - 1}; given: {bad}",
            parameter="prompt",
            value=bad,
        )
