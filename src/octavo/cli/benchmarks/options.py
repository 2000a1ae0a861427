"""Options that several of the commands have."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from octavo.cli.numbers import parse_count
from octavo.cli.pull import MODEL_HELP
from octavo.errors import ConfigError

ModelOption: TypeAlias = Annotated[str, typer.Option("--model", metavar="MODEL", help=MODEL_HELP)]
WorkloadOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--workload", metavar="FILE", help="JSON lines of {id, prompt_token_ids, max_tokens}."
    ),
]
StepsOption: TypeAlias = Annotated[
    int,
    typer.Option("--steps", metavar="INTEGER", parser=parse_count, help="Steps for each figure."),
]


def parse_counts(name: str, text: str) -> tuple[int, ...]:
    """Read 1,8,64. Raises ConfigError, which names the option."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise ConfigError(f"{name} takes numbers from 1, as in 1,8,64; given: {text}")
    return counts
