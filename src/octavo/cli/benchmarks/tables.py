"""Tables of figures on stdout, for people."""

from collections.abc import Sequence
from typing import Any

WIDEST = 1000


def print_grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A title and a table with one row for each thing that was measured; the first column names it."""
    from rich.console import Console  # only a command that prints one pays for it
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(soft_wrap=True)
    # Whole cells, however narrow the terminal: a figure that is cut off is wrong.
    wide = console.options.update(max_width=WIDEST)
    console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table)
    console.print()


def scaled(value: float | None, unit: float) -> float | None:
    """A value in another unit, if there is one."""
    return None if value is None else value / unit


def percent(share: float | None) -> str:
    """A share for people."""
    return "-" if share is None else f"{share:.1%}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "-" if value is None else str(value)
