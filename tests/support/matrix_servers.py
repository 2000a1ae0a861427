"""The two servers of the option matrix: one that guesses ahead, and one that does not."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx

from octavo.config import Backend, SpeculationConfig
from support.option_matrix import Cell, cells, outcome
from support.server_process import running_server, tiny_config, write_long_text_model


@contextlib.contextmanager
def matrix_clients(folder: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of both."""
    write_long_text_model(folder, 1024)  # tools are explained in words
    # How many guesses a step has is a matter of time: only the native backend promises the same bits then.
    config = replace(
        tiny_config(folder, num_blocks=1024), backend=Backend.NATIVE, speculation=False
    )
    guessing = replace(config, speculation=True, speculative_config=SpeculationConfig())
    with (
        running_server(config) as plain,
        running_server(guessing) as speculating,
        httpx.Client(base_url=plain.url, timeout=60) as first,
        httpx.Client(base_url=speculating.url, timeout=60) as second,
    ):
        yield first, second
        plain.wait_idle()
        speculating.wait_idle()


def outcomes(folder: Path) -> dict[Cell, str]:
    """Of all cells."""
    with matrix_clients(folder) as clients:
        return {cell: _told(cell, *clients) for cell in cells()}


def _told(cell: Cell, plain: httpx.Client, speculating: httpx.Client) -> str:
    try:
        return outcome(cell, plain, speculating)
    except AssertionError as error:
        raise AssertionError(f"{' + '.join(cell)}: {error}") from error
