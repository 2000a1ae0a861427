"""`octavo bench compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.numbers import parse_count
from octavo.cli.pull import fetch
from octavo.cli.terminal import Output, OutputOption, note, print_json, progress_bar
from octavo.errors import ConfigError
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.evaluation.comparison.peers.peer import ModelFiles, Peer
    from octavo.evaluation.comparison.record import Conduct, Record
    from octavo.evaluation.comparison.results import Result
    from octavo.evaluation.comparison.rows import Row


PeersOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Of openvino, llama.cpp, vllm, transformers [default: all]."),
]
RowsOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="LIST", help="Rows of the table [default: all].")
]
PairsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER",
        parser=parse_count,
        help="Pairs that must count for each [default: 4; 2 with transformers].",
    ),
]
FirstOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Give a slow peer only the first requests, as in transformers:16; the result says so.",
    ),
]
WorkloadsOption: TypeAlias = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Where sharegpt64.jsonl and alpaca128.jsonl are.")
]
OutOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        metavar="FILE", help="The result; beside it lie a table as .md and a chart as .png."
    ),
]
ResumeOption: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="Go on from what --out holds.")
]


def compare(
    *,
    peers: PeersOption = None,
    rows: RowsOption = None,
    pairs: PairsOption = None,
    first: FirstOption = None,
    workloads: WorkloadsOption = Path("bench/workloads"),
    out: OutOption = Path("comparison.json"),
    resume: ResumeOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare with other systems, each in an environment of its own, in pairs of legs that run one after another.

    What cannot be installed is left out, with the reason. The first run downloads and compiles for long.
    """
    # The engine and the clients' libraries take longer to import than the whole of `--help`.
    from octavo.evaluation.comparison.markdown import markdown
    from octavo.evaluation.comparison.record import Record, load
    from octavo.evaluation.comparison.results import report, results_of
    from octavo.evaluation.comparison.rows import all_rows, rows_named

    if pairs is not None and pairs < 1:
        raise ConfigError(f"--pairs must be at least 1; given: {pairs}")
    if out.exists() and not resume:
        raise ConfigError(f"--out: {out} exists; give --resume to go on from it, or another name")
    chosen = all_rows(workloads)
    if rows is not None:
        chosen = rows_named(chosen, rows.split(","))
    conduct, wanted = _conduct(first), _peers(peers)
    record = load(out, conduct) if resume and out.exists() else Record(conduct)
    with progress_bar() as progress:
        _run(record, chosen, wanted, pairs, out, progress)
    results = results_of(chosen, record)
    if output is Output.JSON:
        print_json(report(chosen, record))
    else:
        _print(results, record)
    out.with_suffix(".md").write_text(markdown(results, record))
    _draw(results, out.with_suffix(".png"))


def _conduct(first: str | None) -> "Conduct":
    from importlib.metadata import version

    from octavo.evaluation.comparison.record import Conduct
    from octavo.machine import inspect_machine

    machine = inspect_machine()
    return Conduct(version("octavo"), machine.cpu_model, machine.num_threads, parse_first(first))


def parse_first(text: str | None) -> dict[str, int]:
    """Read transformers:16,vllm:32. Raises ConfigError."""
    from octavo.evaluation.comparison.peers.all import PEERS

    found = {}
    for part in text.split(",") if text else ():
        name, _, count = part.partition(":")
        if name not in PEERS or not count.isdigit() or int(count) < 1:
            raise ConfigError(
                f"--first takes PEER:COUNT with PEER one of {', '.join(PEERS)}; given: {text}"
            )
        found[name] = int(count)
    return found


def _peers(names: str | None) -> "list[Peer]":
    from octavo.evaluation.comparison.peers.all import PEERS

    wanted = list(PEERS) if names is None else names.split(",")
    for name in wanted:
        if name not in PEERS:
            raise ConfigError(f"--peers takes {', '.join(PEERS)}; given: {name}")
    return [PEERS[name]() for name in dict.fromkeys(wanted)]


def _run(
    record: "Record",
    rows: "Sequence[Row]",
    peers: "Sequence[Peer]",
    pairs: int | None,
    out: Path,
    progress: Progress,
) -> None:
    from octavo.evaluation.comparison.probes import Watch, take_reading
    from octavo.evaluation.comparison.record import save
    from octavo.evaluation.comparison.results import report
    from octavo.evaluation.comparison.run import Comparison

    num_threads = record.conduct.num_threads
    comparison = Comparison(
        rows=rows,
        peers=peers,
        models=_models({row.model for row in rows}, progress),
        num_pairs=pairs,
        watch=lambda: Watch(lambda: take_reading(num_threads)),
        save=lambda so_far: save(so_far, out, report(rows, so_far)),
    )
    comparison.run(record, progress)


def _models(names: set[str], progress: Progress) -> "dict[str, ModelFiles]":
    """The models of the rows; smollm2 also as a folder of bfloat16."""
    from octavo.evaluation.comparison.bf16_folder import cached_bf16_folder
    from octavo.evaluation.comparison.peers.peer import ModelFiles
    from octavo.evaluation.comparison.rows import SMOLLM2

    found = {}
    for name in sorted(names):
        gguf, folder = fetch(name), None
        if name == SMOLLM2:
            folder = cached_bf16_folder(gguf, progress)
        found[name] = ModelFiles(gguf, folder)
    return found


def _print(results: "Sequence[Result]", record: "Record") -> None:
    """A table for each figure of each row, and below what it took to get there."""
    from octavo.evaluation.comparison.markdown import remarks

    for title in dict.fromkeys((result.title, result.figure) for result in results):
        lines = [line_of(result) for result in results if (result.title, result.figure) == title]
        print_grid(", ".join(title), COLUMNS, lines)
    for remark in remarks(results, record):
        note(remark)


COLUMNS = ("ours", "against", "ours", "its", "times better", "range", "wanted", "pairs")


def line_of(result: "Result") -> tuple[Any, ...]:
    """One line of a table."""
    return (
        result.ours, result.peer, result.our_value, result.peer_value, result.verdict.median,
        result.shown_range, result.shown_goal, result.shown_pairs,
    )  # fmt: skip


def _draw(results: "Sequence[Result]", file: Path) -> None:
    from octavo.evaluation.comparison.chart import check_chart_library, draw_chart

    try:
        check_chart_library()
    except ConfigError as error:
        note(f"no chart: {error}")
        return
    draw_chart(results, file)
    note(f"chart: {file}")
