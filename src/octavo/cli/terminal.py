"""What commands show: results on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, TypeAlias

import typer

from octavo.progress import Progress


class Output(str, Enum):
    """How a command gives its result."""

    TEXT = "text"
    JSON = "json"


OutputOption: TypeAlias = Annotated[
    Output,
    typer.Option(
        "--output", metavar="text|json", help="json: one JSON object on stdout and nothing else."
    ),
]


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object, on one line of stdout."""
    print(json.dumps(value, ensure_ascii=False))  # noqa: T201  # a command's result


def print_result(report: Mapping[str, Any], output: Output) -> None:
    """What a command has found out, in the form that was asked for."""
    if output is Output.JSON:
        print_json(report)
    else:
        print_table(report)


def print_table(rows: Mapping[str, Any]) -> None:
    """Names and values on stdout, for people."""
    # Plain lines, whatever their length: a path that is cut to the width of a terminal cannot be copied.
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        print(f"{name:<{width}}  {_shown(value)}")  # noqa: T201  # a command's result


def note(message: str) -> None:
    """A line on stderr."""
    print(message, file=sys.stderr, flush=True)  # noqa: T201  # a command's own voice


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr for (stage, fraction) reports; one line for each stage where there is no terminal."""
    if not sys.stderr.isatty():
        yield _stage_lines()
        return
    import rich.progress
    from rich.console import Console

    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TaskProgressColumn(),
    )
    tasks: dict[str, rich.progress.TaskID] = {}
    with rich.progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def report(stage: str, fraction: float) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1.0)
            bar.update(tasks[stage], completed=fraction)

        yield report


def _stage_lines() -> Progress:
    seen: set[str] = set()

    def report(stage: str, _fraction: float) -> None:
        if stage not in seen:
            seen.add(stage)
            note(f"{stage} ...")

    return report


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value)) or "none"
    return "-" if value is None else str(value)
