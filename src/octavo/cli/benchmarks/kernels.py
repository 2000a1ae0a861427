"""`octavo bench kernels`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.options import ModelOption, StepsOption, parse_counts
from octavo.cli.benchmarks.state import BandwidthProbe
from octavo.cli.benchmarks.tables import percent, print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.evaluation.kernels import KernelFormat, KernelRate
    from octavo.evaluation.peaks import Peaks
    from octavo.models.spec import DecoderSpec

GIGA = 1e9


@takes_flags("--revision", "--threads")
def kernels(
    *,
    model: ModelOption = DEFAULT_MODEL,
    rows: Annotated[
        str, typer.Option(metavar="LIST", help="Rows that are multiplied at a time.")
    ] = "1,8,64,512",
    formats: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="As in bfloat16,int8,Q4_1 [default: all that the shapes allow]."
        ),
    ] = None,
    steps: StepsOption = 10,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Measure the matrix kernels in a model's shapes, in every weight format, as shares of this machine's peaks.

    Each line is an op as a step runs it, with what is fused to the multiplication; the weights are made up.
    """
    # numpy and the engine take longer to import than the whole of `--help`.
    from octavo import _C
    from octavo.engine.build import facts_of
    from octavo.evaluation.kernels import measure_kernels
    from octavo.evaluation.peaks import calibrate
    from octavo.machine import inspect_machine
    from octavo.models.model import load_model
    from octavo.resolve import resolve

    row_counts = parse_counts("--rows", rows)
    if steps < 1:
        raise ConfigError(f"--steps must be at least 1; given: {steps}")
    config = with_fetched_model(settings.engine(model))
    loaded = load_model(Path(config.model.model))
    wanted = _formats(formats, loaded.spec)
    num_threads = resolve(config, facts_of(loaded, config), inspect_machine()).num_threads
    probe = BandwidthProbe(num_threads, config.backend)
    with progress_bar() as progress:
        found = measure_kernels(config, loaded, wanted, row_counts, steps, progress)
    probe.again()
    lines = _lines(found, peaks := calibrate(num_threads, probe.mean))
    state = {
        "model": model, "weights": "made up, in the model's shapes",
        "instruction_set": _C.isa(), "num_threads": num_threads, **probe.state(), **peaks.state(),
    }  # fmt: skip
    if output is Output.JSON:
        print_json({"kernels": lines, **state})
        return
    _print(lines)
    print_table(state)


def _formats(text: str | None, spec: "DecoderSpec") -> "list[KernelFormat]":
    from octavo.evaluation.kernels import FORMATS, fits, formats_named

    try:
        wanted = list(FORMATS) if text is None else formats_named(text.split(","))
    except KeyError as error:
        names = ", ".join(fmt.name for fmt in FORMATS)
        raise ConfigError(f"--formats takes {names}; given: {error.args[0]}") from error
    for fmt in wanted:
        if not fits(spec, fmt):
            note(f"{fmt.name} is left out: rows of this model are no whole blocks of it")
    return [fmt for fmt in wanted if fits(spec, fmt)]


def _lines(found: "Sequence[KernelRate]", peaks: "Peaks") -> list[dict[str, Any]]:
    """The rates, as shares of the peaks that were measured in this process."""
    return [
        {
            "format": rate.format, "op": rate.op, "k": rate.k, "n": rate.n, "num_rows": rate.num_rows,
            "us": rate.us, "bytes_per_s": rate.bytes_per_s, "operations_per_s": rate.operations_per_s,
            "bandwidth_share": rate.bytes_per_s / peaks.read_bandwidth,
            "operations_share": rate.operations_per_s / peaks.operations_per_s[rate.kind],
            "roofline_share": peaks.least_seconds(rate.cost.num_bytes, rate.cost.by_kind) / rate.seconds,
        }
        for rate in found
    ]  # fmt: skip


def _print(lines: Sequence[dict[str, Any]]) -> None:
    for name in dict.fromkeys(line["format"] for line in lines):
        print_grid(
            name,
            ("op", "K", "N", "rows", "us", "GB/s", "of bandwidth", "GOP/s", "of GOP/s peak", "of roofline"),
            [
                (
                    line["op"], line["k"], line["n"], line["num_rows"], line["us"],
                    line["bytes_per_s"] / GIGA, percent(line["bandwidth_share"]),
                    line["operations_per_s"] / GIGA, percent(line["operations_share"]),
                    percent(line["roofline_share"]),
                )
                for line in lines
                if line["format"] == name
            ],
        )  # fmt: skip
