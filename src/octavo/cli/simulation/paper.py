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
    from octavo.planning.paper_runs import Runs
    from octavo.planning.paper_tables import Variation

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
    from octavo.planning.paper_notes import Note
    from octavo.planning.paper_runs import Runs
    from octavo.planning.paper_tables import MISSING, rows_of

    if minutes < SHORTEST_MINUTES:
        raise ConfigError(f"--minutes must be at least {SHORTEST_MINUTES:g}; given: {minutes}")
    if charts is not None:
        from octavo.planning.charts import check_chart_library

        check_chart_library()
        charts.mkdir(parents=True, exist_ok=True)
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
                "rows": [_row(row) for row in rows_of(runs)],
                "notes": {note.letter: note.value for note in Note},
                "assumptions": asdict(assumed),
                "variations": _variations(runs),
                "block_sizes": _block_sizes(runs),
                "not_reproduced": list(MISSING),
            }
        )
    else:
        print_tables(runs)


def print_tables(runs: "Runs") -> None:
    """Everything that the runs come to, for people."""
    from octavo.planning.paper_notes import Note
    from octavo.planning.paper_tables import MISSING, rows_of

    print_grid(
        "Published and simulated: OPT-13B on an A100-40GB (figure 16: LLaMA-13B)",
        ("figure", "what", "published", "simulated", "difference", ""),
        [
            (
                row.figure, row.what, _published(row), _value(row, row.simulated), _difference(row),
                row.note.letter if row.note else "",
            )
            for row in rows_of(runs)
        ],
    )  # fmt: skip
    for why in Note:
        typer.echo(f"{why.letter}  {why.value}")
    typer.echo("")
    sizes = _block_sizes(runs)
    print_grid(
        "Figure 18b: latency per token (ms) by block size, without what a kernel loses with small blocks",
        ("data set", *map(str, next(iter(sizes.values())))),
        [(kind, *latencies.values()) for kind, latencies in sizes.items()],
    )
    _print_variations(runs)
    typer.echo("Assumed, for all rows:")
    print_table({name.replace("_", " "): value for name, value in asdict(runs.assumed).items()})
    typer.echo("\nNot reproduced:")
    for line in MISSING:
        typer.echo(f"  {line}")


def _print_variations(runs: "Runs") -> None:
    from octavo.planning.paper_tables import NAMES, variations

    found = variations(runs)
    systems = [NAMES[p].removeprefix("Orca ").strip("()") for p in found["as assumed"].held]
    print_grid(
        "How the results move with what is assumed: memory that holds tokens and requests in a step with a queue that is "
        "never empty; rate sustained",
        (
            "assumed", *systems, *(f"batch: {name}" for name in systems), "paged/Oracle", "paged/Max",
            "rate: paged/Oracle", "paged/Max",
        ),
        [(name, *_moved(v)) for name, v in found.items()],
    )  # fmt: skip
    print_grid(
        "Likewise: blocks saved by sharing",
        ("assumed", *(f"{kind}, {n} {what}" for kind, what, n in found["as assumed"].saved)),
        [(name, *map(percent, v.saved.values())) for name, v in found.items() if v.saved],
    )


def _moved(v: "Variation") -> tuple[str, ...]:
    maximum, _, oracle, paged = v.batch.values()
    return (
        *map(percent, v.held.values()),
        *(f"{batch:.2f}" for batch in v.batch.values()),
        *(f"{ratio:.2f}x" for ratio in (paged / oracle, paged / maximum, *v.rates.values())),
    )


def _row(row: "PaperRow") -> dict[str, Any]:
    letter = row.note.letter if row.note else None
    return {**asdict(replace(row, note=None)), "difference": row.difference, "note": letter}


def _published(row: "PaperRow") -> str:
    return " - ".join(_value(row, value) for value in row.published)


def _value(row: "PaperRow", value: float) -> str:
    return percent(value) if row.unit == "%" else f"{value:.2f}{row.unit}"


def _difference(row: "PaperRow") -> str:
    value = row.difference
    return f"{100 * value:+.1f} points" if row.unit == "%" else f"{value:+.2f}{row.unit}"


def _variations(runs: "Runs") -> dict[str, dict[str, Any]]:
    from octavo.planning.paper_tables import variations

    return {
        name: {
            "memory_that_holds_tokens": {p.value: share for p, share in v.held.items()},
            "requests_in_a_step": {p.value: batch for p, batch in v.batch.items()},
            "rate_of_paged_over": {p.value: ratio for p, ratio in v.rates.items()},
            "blocks_saved": {f"{kind} {n} {what}": x for (kind, what, n), x in v.saved.items()},
        }
        for name, v in variations(runs).items()
    }


def _block_sizes(runs: "Runs") -> dict[str, dict[int, float | None]]:
    from octavo.planning.paper_tables import block_sizes

    return {
        kind: {size: ms(f.normalized_latency_s, "mean") for size, f in sizes.items()}
        for kind, sizes in block_sizes(runs).items()
    }


def _draw(runs: "Runs", folder: Path) -> None:
    from octavo.planning.charts import draw_lines, draw_memory
    from octavo.planning.paper import SYSTEMS
    from octavo.planning.paper_tables import NAMES

    memory = {NAMES[p]: runs.results["full", "as assumed", p].memory for p in SYSTEMS}
    draw_memory(memory, folder / "memory.png")
    curves: dict[str, Any] = {
        kind: [(size, latency) for size, latency in sizes.items() if latency is not None]
        for kind, sizes in _block_sizes(runs).items()
    }
    draw_lines(
        curves, folder / "block-sizes.png", log_x=True, xlabel="tokens in a block",
        ylabel="latency per token, ms", title="figure 18b",
    )  # fmt: skip
    note(f"wrote {folder}/memory.png and {folder}/block-sizes.png")
