"""The `prompt` of a completion: one or many, text or token ids."""

from typing import Any

from octavo.errors import InvalidParameterError, PromptError
from octavo.server.openai.limits import check_num_choices


def parse_prompts(
    prompt: Any, *, max_prompts: int, n: int, name: str = "prompt"
) -> list[str | list[int]]:
    """The prompts in order, from the parameter `name`. Raises InvalidParameterError, PromptError."""
    prompts = _split(prompt, name)
    if len(prompts) > max_prompts:
        raise InvalidParameterError(
            f"{name} may hold at most {max_prompts} texts; given: {len(prompts)}",
            parameter=name,
            value=len(prompts),
        )
    check_num_choices(len(prompts), n)
    return prompts


def check_token_ids(ids: object, vocab_size: int, name: str) -> list[int]:
    """`ids` as a list of token ids. Raises PromptError, naming `name`, the limit and the id that is wrong."""
    if not isinstance(ids, list):
        raise PromptError(f"{name} must be a list of token ids", parameter=name, value=ids)
    for token_id in ids:
        # type() rather than isinstance: true is not a token id
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise PromptError(
                f"{name} must hold token ids from 0 to {vocab_size - 1}; "
                f"given: {str(token_id)[:40]}",
                parameter=name,
                value=token_id,
            )
    return ids


def check_not_empty(ids: list[int], position: int | None, name: str = "prompt") -> None:
    """Raise PromptError if a prompt has no token. `position` is its place in a list of prompts, `name` the field's."""
    if not ids:
        which = f"the {name}" if position is None else f"{name} {position}"
        raise PromptError(f"{which} is empty; at least one token is needed", parameter=name)


def _split(prompt: Any, name: str) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list):
        if not prompt:
            raise PromptError(f"{name} must not be an empty list", parameter=name, value=prompt)
        kinds = {type(part) for part in prompt}
        if kinds == {str} or kinds == {list}:
            return prompt
        if kinds == {int}:
            return [prompt]
    raise InvalidParameterError(
        f"{name} must be a string, a list of strings, a list of token ids, or a list of lists of token ids",
        parameter=name,
        value=prompt,
    )
