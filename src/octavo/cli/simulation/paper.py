"""`octavo simulate paper`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.tables import percent, print_grid
from octavo.cli.simulation.options import ProcessesOption, SeedOption
from octavo.cli.simulation.text import ms
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table, progress_bar
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.planning.paper import PaperRow
    from octavo.planning.paper_tables import Runs

SHORTEST_MINUTES = 4.0


def paper(
    *,
    minutes: Annotated[
        float, typer.Option(metavar="NUMBER", help="Length of each trace; the paper's is an hour.")
    ] = 60.0,
    seed: SeedOption = 0,
    processes: ProcessesOption = None,
    charts: Annotated[
        Path | None, typer.Option("--charts", metavar="FOLDER", help="Write pictures (PNG) there.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Simulate the measurements of the PagedAttention paper (SOSP 2023), beside the published values."""
    from octavo.machine import inspect_machine
    from octavo.planning.paper import Assumptions
    from octavo.planning.paper_tables import MISSING, Runs

    if minutes < SHORTEST_MINUTES:
        raise ConfigError(f"--minutes must be at least {SHORTEST_MINUTES:g}; given: {minutes}")
    assumed = replace(Assumptions(), seconds=60 * minutes, seed=seed)
    runs = Runs(assumed)
    with progress_bar() as progress:
        runs.compute(
            processes or inspect_machine().num_threads,
            lambda share: progress("simulating", share),
        )
    if charts is not None:
        _draw(runs, charts)
    if output is Output.JSON:
        print_json(
            {
                "rows": [{**asdict(row), "difference": row.difference} for row in runs.rows()],
                "assumptions": asdict(assumed),
                "variations": _variations(runs),
                "block_sizes": _block_sizes(runs),
                "not_reproduced": list(MISSING),
            }
        )
    else:
        _print(runs)


def _print(runs: "Runs") -> None:
    from octavo.planning.paper_tables import MISSING

    print_grid(
        "Published and simulated: OPT-13B on an A100-40GB",
        ("figure", "what", "published", "simulated", "difference"),
        [
            (row.figure, row.what, _published(row), _value(row, row.simulated), _difference(row))
            for row in runs.rows()
        ],
    )
    print_grid(
        "Figure 18b: latency per token (ms) by block size, without what a kernel loses with small blocks",
        ("data set", *map(str, next(iter(_block_sizes(runs).values())))),
        [(kind, *sizes.values()) for kind, sizes in _block_sizes(runs).items()],
    )
    print_grid(
        "How the results move with what is assumed (queue never empty): memory that holds tokens, requests in a step",
        (
            "assumed",
            "Max",
            "Pow2",
            "Oracle",
            "paged",
            "batch: Max",
            "Pow2",
            "Oracle",
            "paged",
            "paged/Oracle",
        ),
        [
            (
                name,
                *(percent(share) for share in row["memory_that_holds_tokens"]),
                *(f"{batch:.2f}" for batch in row["requests_in_a_step"]),
                f"{row['requests_in_a_step'][3] / row['requests_in_a_step'][2]:.2f}x",
            )
            for name, row in _variations(runs).items()
        ],
    )
    typer.echo("Assumed, for all rows:")
    print_table({name.replace("_", " "): value for name, value in asdict(runs.assumed).items()})
    typer.echo("\nNot reproduced:")
    for line in MISSING:
        typer.echo(f"  {line}")


def _published(row: "PaperRow") -> str:
    return " - ".join(_value(row, value) for value in row.published)


def _value(row: "PaperRow", value: float) -> str:
    return percent(value) if row.unit == "%" else f"{value:.2f}{row.unit}"


def _difference(row: "PaperRow") -> str:
    value = row.difference
    return f"{100 * value:+.1f} points" if row.unit == "%" else f"{value:+.2f}{row.unit}"


def _variations(runs: "Runs") -> dict[str, dict[str, list[float]]]:
    return {
        name: {
            "memory_that_holds_tokens": [f.memory.tokens for f in figures.values()],
            "requests_in_a_step": [f.mean_batch for f in figures.values()],
        }
        for name, figures in runs.variations().items()
    }


def _block_sizes(runs: "Runs") -> dict[str, dict[int, float | None]]:
    return {
        kind: {size: ms(f.normalized_latency_s, "mean") for size, f in sizes.items()}
        for kind, sizes in runs.block_sizes().items()
    }


def _draw(runs: "Runs", folder: Path) -> None:
    from octavo.planning.charts import draw_lines, draw_memory
    from octavo.planning.paper_tables import NAMES

    folder.mkdir(parents=True, exist_ok=True)
    systems = runs.variations()["as assumed"]
    draw_memory({NAMES[p]: f.memory for p, f in systems.items()}, folder / "memory.png")
    curves: dict[str, Any] = {
        kind: [(size, latency) for size, latency in sizes.items() if latency is not None]
        for kind, sizes in _block_sizes(runs).items()
    }
    draw_lines(
        curves, folder / "block-sizes.png", log_x=True, xlabel="tokens in a block",
        ylabel="latency per token, ms", title="figure 18b",
    )  # fmt: skip
    note(f"wrote {folder}/memory.png and {folder}/block-sizes.png")
