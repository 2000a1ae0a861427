"""Sampling options on the command line of a server: refused with a word on where they belong."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from octavo.cli.flags import FLAGS, Group, Reads
from octavo.cli.signature import set_parameters
from octavo.errors import ConfigError

_SAMPLING_FLAGS = [flag for flag in FLAGS if flag.group is Group.SAMPLING]


def refuses_sampling_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the sampling flags, hidden from its help. Raises ConfigError for each that is given."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        for flag in _SAMPLING_FLAGS:
            if arguments.pop(flag.variable) is not None:
                field = flag.target.partition(".")[2]
                raise ConfigError(
                    f"{flag.name} is no setting of a server: set {field} in each request"
                )
        command(**arguments)

    own = inspect.signature(command).parameters.values()
    hidden = [
        inspect.Parameter(
            flag.variable,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                bool | None if flag.reads is Reads.SWITCH else str | None,
                typer.Option(*flag.spellings, hidden=True),
            ],
        )
        for flag in _SAMPLING_FLAGS
    ]
    set_parameters(run, [*own, *hidden])
    return run
