"""Prompts in all the forms in which `LLM.generate` takes them."""

import contextlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, TypeVar, cast

from octavo.engine.prompts import token_id_array
from octavo.errors import InvalidParameterError, PromptError, UnsupportedParameterError, UserError
from octavo.text.tokenizer import Tokenizer


class PromptDict(TypedDict, total=False):
    """A prompt with its parts named."""

    prompt: str
    prompt_token_ids: Sequence[int]
    cache_salt: str


Prompt: TypeAlias = str | Sequence[int] | PromptDict
Prompts: TypeAlias = Prompt | Sequence[Prompt]

_KNOWN_KEYS = frozenset(PromptDict.__annotations__)
_UNSUPPORTED_KEYS = frozenset(
    (
        "prompt_embeds",
        "multi_modal_data",
        "multi_modal_uuids",
        "mm_processor_kwargs",
        "encoder_prompt",
    )
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """A prompt as the engine takes it."""

    text: str | None
    token_ids: "array[int]"
    cache_salt: str = ""
    """Only prompts with the same salt share the pages of equal beginnings."""


def split_prompts(prompts: Prompts) -> tuple[list[Any], bool]:
    """The single prompts, and whether a list of them was given. A list of integers is one prompt."""
    if isinstance(prompts, (str, Mapping)) or _is_token_ids(prompts):
        return [prompts], False
    if not isinstance(prompts, Sequence) or isinstance(prompts, (bytes, bytearray)):
        raise PromptError(
            f"prompts must be text, token ids, a dict or a list of these; given: {type(prompts).__name__}",
            parameter="prompts",
        )
    return list(prompts), True


def parse_prompt(prompt: Any, tokenizer: Tokenizer) -> ParsedPrompt:
    """Encode a text (with the special tokens that the model wants), or take token ids as they are."""
    if isinstance(prompt, str):
        return ParsedPrompt(prompt, array("i", tokenizer.encode(prompt)))
    if isinstance(prompt, Mapping):
        return _parse_dict(prompt, tokenizer)
    if isinstance(prompt, (list, tuple, array)):
        return ParsedPrompt(None, token_id_array(prompt))
    raise PromptError(
        f"a prompt must be text, token ids or a dict; given: {type(prompt).__name__}",
        parameter="prompts",
    )


def _parse_dict(prompt: Mapping[str, Any], tokenizer: Tokenizer) -> ParsedPrompt:
    for key in prompt:
        if key in _UNSUPPORTED_KEYS:
            raise UnsupportedParameterError(f"{key} is not supported", parameter=key)
        if key not in _KNOWN_KEYS:
            raise InvalidParameterError(f"a prompt has no {key!r}", parameter=key)
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    salt = prompt.get("cache_salt", "")
    if not isinstance(salt, str):
        raise InvalidParameterError(
            f"cache_salt must be text; given: {salt!r}", parameter="cache_salt", value=salt
        )
    if token_ids is not None:
        return ParsedPrompt(text, token_id_array(token_ids), salt)
    if not isinstance(text, str):
        raise PromptError("a prompt needs a prompt or prompt_token_ids", parameter="prompts")
    return ParsedPrompt(text, array("i", tokenizer.encode(text)), salt)


def _is_token_ids(prompts: object) -> bool:
    if isinstance(prompts, array):
        return True
    return (
        isinstance(prompts, (list, tuple))
        and bool(prompts)
        and all(isinstance(part, int) for part in prompts)
    )


@contextlib.contextmanager
def naming_prompt(index: int | None) -> Iterator[None]:
    """Say in a UserError which prompt of a list it is about; None: there is only one."""
    try:
        yield
    except UserError as error:
        if index is None:
            raise
        raise type(error)(
            f"prompts[{index}]: {error}", parameter=error.parameter, value=error.value
        ) from error


def one_for_each(name: str, value: "T | Sequence[T]", count: int) -> list[T]:
    """A parameter given once for all prompts, or once for each. Raises InvalidParameterError for another number."""
    if not isinstance(value, (list, tuple)):
        return [cast(T, value)] * count
    if len(value) != count:
        raise InvalidParameterError(
            f"{name} must be one, or as many as the {count} prompts; given: {len(value)}",
            parameter=name,
            value=len(value),
        )
    return list(value)
