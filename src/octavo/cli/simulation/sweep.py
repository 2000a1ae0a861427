"""`octavo simulate sweep`."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.options import parse_counts
from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.option_groups import takes_options
from octavo.cli.simulation.loads import load_of
from octavo.cli.simulation.machines import SETUP_FLAGS, STEP_FLAGS, setup_of
from octavo.cli.simulation.options import (
    LoadOptions,
    MachineOptions,
    ModelArgument,
    PriceOption,
    ProcessesOption,
)
from octavo.cli.simulation.text import ms, setup_state
from octavo.cli.terminal import Output, OutputOption, note, print_json, progress_bar

if TYPE_CHECKING:
    from octavo.planning.sweep import SweepRow

NOTHING_MEETS = 1


@takes_flags(*SETUP_FLAGS)
@takes_options(machine=MachineOptions, load=LoadOptions)
def sweep(
    model: ModelArgument = "smollm2",
    *,
    block_size: Annotated[str, typer.Option(metavar="LIST", help="As in 8,16,32.")] = "16,32",
    max_num_batched_tokens: Annotated[
        str, typer.Option(metavar="LIST", help="As in 512,2048.")
    ] = "512,2048",
    max_num_seqs: Annotated[str, typer.Option(metavar="LIST", help="As in 32,64,256.")] = "64,256",
    target: Annotated[
        str,
        typer.Option(metavar="LIMITS", help="Of ttft, itl, e2e, normalized; mean, p50, p90, p99."),
    ] = "ttft_p99<2s,itl_p99<100ms",
    seconds: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Length of each made-up load [default: 300]."),
    ] = None,
    machine: MachineOptions,
    load: LoadOptions,
    price: PriceOption = None,
    processes: ProcessesOption = None,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Find the settings with the lowest cost that meet a target: for each the highest rate of requests is searched."""
    from octavo.machine import inspect_machine
    from octavo.planning.sweep import Grid, run_sweep
    from octavo.planning.targets import parse_goal

    counts = map(
        parse_counts,
        ("--block-size", *STEP_FLAGS),
        (block_size, max_num_batched_tokens, max_num_seqs),
    )
    setup = setup_of(model, machine, settings)
    with progress_bar() as progress:
        rows = run_sweep(
            setup, Grid(*counts), load_of(load, seconds, setup.max_model_len), parse_goal(target),
            num_processes=processes or inspect_machine().num_threads,
            progress=partial(progress, "simulating"),
        )  # fmt: skip
    command = _command(rows[0], model or "", settings) if rows and rows[0].tokens_per_s else None
    if output is Output.JSON:
        print_json(
            {"rows": [_row(row, price) for row in rows], "command": command, "seed": load.seed}
        )
    else:
        _print(rows, price, target, command)
    if command is None:
        raise typer.Exit(NOTHING_MEETS)


def _row(row: "SweepRow", price: float | None) -> dict[str, Any]:
    figures = row.capacity.figures
    return {
        **setup_state(row.setup),
        "max_requests_per_s": row.capacity.rate,
        "output_tokens_per_s": row.tokens_per_s,
        "cost_per_million_tokens": None if price is None else row.cost_per_million_tokens(price),
        "ttft_p99_ms": figures and ms(figures.ttft_s, "p99"),
        "itl_p99_ms": figures and ms(figures.itl_s, "p99"),
        "num_preemptions": figures and figures.num_preemptions,
    }


def _print(rows: "list[SweepRow]", price: float | None, target: str, command: str | None) -> None:
    names = (
        "block_size", "max_num_seqs", "max_num_batched_tokens", "max_requests_per_s", "output_tokens_per_s", "cost_per_million_tokens", "ttft_p99_ms",
        "itl_p99_ms", "num_preemptions",
    )  # fmt: skip
    found = [_row(row, price) for row in rows]
    print_grid(
        f"The highest rate with {target}",
        (
            "block",
            "seqs",
            "tokens",
            "requests/s",
            "tokens/s",
            "cost/M",
            "ttft p99 ms",
            "itl p99 ms",
            "preempted",
        ),
        [tuple(row[name] for name in names) for row in found],
    )
    if command is None:
        note("no setting meets the target, however low the rate")
    else:
        typer.echo(command)


def _command(row: "SweepRow", model: str, settings: Settings) -> str:
    """`octavo serve` with these settings."""
    from octavo.remedies import serve_command

    config = settings.engine(model)
    return serve_command(
        replace(
            config,
            cache=replace(config.cache, block_size=_served(row.setup.block_size)),
            scheduler=row.setup.limits,
        )
    )


def _served(block_size: int) -> int:
    """The nearest block size that the kernels read: the simulator takes any."""
    from octavo.config import BLOCK_SIZES

    if block_size not in BLOCK_SIZES:
        nearest = min(BLOCK_SIZES, key=lambda size: abs(size - block_size))
        note(f"blocks of {block_size} can be simulated, not served; the command has {nearest}")
        return nearest
    return block_size
