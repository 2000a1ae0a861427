"""Options that vLLM's `SamplingParams` has and Octavo's has not: accepted where they ask for nothing, else refused by name."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from octavo.errors import UnsupportedParameterError

NO_EFFECT = frozenset(
    ("length_penalty", "early_stopping", "skip_clone", "skip_reading_prefix_cache")
)
"""Accepted: they belong to beam search, which is refused, or cannot change an answer."""

REFUSED: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "best_of": ("n sequences are made and all of them returned", (None,)),
    "extra_args": ("there are no custom logits processors", (None, {})),
    "flat_logprobs": ("log-probabilities are lists of dicts", (None, False)),
    "guided_decoding": ("give structured_outputs=StructuredOutputsParams(...)", (None,)),
    "logits_processors": ("there are no custom logits processors", (None, [])),
    "logprob_token_ids": ("log-probabilities of chosen ids are not available", (None, [])),
    "output_kind": ("an output has all of its tokens", (None,)),
    "repetition_detection": ("repetition detection is not available", (None,)),
    "thinking_token_budget": ("thinking budgets are not available", (None, -1)),
    "truncate_prompt_tokens": ("prompts are never cut", (None,)),
    "use_beam_search": ("beam search is not available", (None, False)),
}
"""Why each is refused, and the values that ask for nothing."""

C = TypeVar("C", bound=type)


def knows_vllm_options(cls: C) -> C:
    """Let a class be made with these options too. Raises UnsupportedParameterError for those that are refused."""
    make: Callable[..., None] = cls.__init__  # type: ignore[misc]  # of this class itself

    @wraps(make)
    def __init__(self: object, **options: Any) -> None:  # noqa: N807  (it becomes the method)
        make(self, **_own_options(options))

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


def _own_options(options: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for name, value in options.items():
        if name in REFUSED:
            reason, neutral = REFUSED[name]
            is_n = name == "best_of" and value == options.get("n", 1)
            if not is_n and not any(value is n or value == n for n in neutral):
                raise UnsupportedParameterError(
                    f"{name} is not supported: {reason}", parameter=name, value=value
                )
        elif name not in NO_EFFECT:
            own[name] = value
    return own
