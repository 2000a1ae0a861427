"""The options of a command that is put together at run time."""

import inspect
from collections.abc import Callable, Sequence


def set_parameters(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Make these the parameters that typer sees: it reads a command's options from its signature and annotations."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
