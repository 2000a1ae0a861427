"""Options that belong together, declared once as the fields of a dataclass, for every command that takes them."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

from octavo.cli.signature import set_parameters


def takes_options(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of dataclasses as options; it receives a value of each under the keyword's name.

    The fields' types are typer's, and their defaults the options'.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            for name, group in groups.items():
                values = {f.name: arguments.pop(f.name) for f in fields(group)}
                arguments[name] = group(**values)
            command(**arguments)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            parameters += _options(groups[own.name]) if own.name in groups else [own]
        set_parameters(run, parameters)
        return run

    return decorate


def _options(group: type) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in fields(group)
    ]
