"""`octavo simulate validate`."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import BandwidthProbe
from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.simulation.loads import recorded
from octavo.cli.simulation.options import LoadOptions, RequestsOption
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.evaluation.validate.verdict import Comparison, Line, Validated

NOT_NEAR = 1
SHORTEST_PROFILE_S = 2.0
MINUTE = 60.0


@takes_flags(
    "--revision", "--dtype", "--backend", "--threads", "--max-model-len", "--block-size",
    "--kv-cache-memory-bytes", "--kv-cache-dtype", "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def validate(
    traces: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Loads: traces as of `simulate run`.")
    ],
    *,
    model: ModelOption = DEFAULT_MODEL,
    requests: RequestsOption = None,
    repeats: Annotated[
        int, typer.Option(metavar="INTEGER", help="Runs of each load; their median counts.")
    ] = 3,
    profile_seconds: Annotated[
        float, typer.Option(metavar="NUMBER", help="Measuring what steps cost, before each repeat.")
    ] = 20.0,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Run loads on the engine and in the simulator, at 30, 60 and 85 % of the capacity, and compare; exit 1 if too far.

    Wants a machine that does nothing else; what something else disturbs is measured again.
    """
    from octavo.evaluation.comparison.probes import Watch, take_reading
    from octavo.evaluation.validate.run import Validation
    from octavo.machine import inspect_machine

    for name, value, low in (
        ("--repeats", repeats, 1), ("--profile-seconds", profile_seconds, SHORTEST_PROFILE_S),
    ):  # fmt: skip
        if not value >= low:
            raise ConfigError(f"{name} must be at least {low:g}; given: {value}")
    config = with_fetched_model(settings.engine(model, max_num_queued_reqs=1 << 20))
    longest = config.model.max_model_len or 1 << 30
    loads = {p.stem: recorded(LoadOptions(str(p)), longest)[:requests] for p in traces}
    num_threads = config.num_threads or inspect_machine().num_threads
    probe = BandwidthProbe(num_threads, config.backend)
    with progress_bar() as progress:
        validated = Validation(
            config, loads, repeats, profile_seconds, lambda: Watch(lambda: take_reading(num_threads)), progress,
            announce=lambda seconds: note(f"this takes about {max(1, round(seconds / MINUTE))} min"),
        ).run()  # fmt: skip
    probe.again()
    state = {"model": model, "repeats": repeats, **probe.state()}
    if output is Output.JSON:
        print_json({**_report(validated), **state})
    else:
        _print(validated, state)
    if not validated.holds:
        raise typer.Exit(NOT_NEAR)


def _report(validated: "Validated") -> dict[str, Any]:
    return {
        "comparisons": [
            {
                **asdict(c),
                "lines": [
                    {**asdict(line), "difference": line.difference, "holds": line.holds}
                    for line in c.lines()
                ],
            }
            for c in validated.comparisons
        ],
        "is_order_right": {load: validated.is_order_right(load) for load in validated.loads},
        "repeated": [asdict(repeated) for repeated in validated.repeated],
        "missing": [str(trial) for trial in validated.missing],
        "fit": _fit(validated),
        "holds": validated.holds,
    }


def _fit(validated: "Validated") -> dict[str, float]:
    from statistics import median

    from octavo.planning.figures import spread

    errors = spread(map(abs, validated.fit_errors))
    assert errors is not None  # a fit needs steps
    return {
        "num_steps": len(validated.fit_errors),
        "wake_s": median(validated.wakes_s),
        "relative_error_p50": errors.p50,
        "relative_error_p90": errors.p90,
    }


def _print(validated: "Validated", state: dict[str, Any]) -> None:
    print_grid(
        "Measured and simulated",
        ("load", "of capacity", "requests/s", "runs", "figure", "measured", "simulated", "difference", "limit", ""),
        [
            _row(c, line)
            for c in validated.comparisons
            if c.has_limits
            for line in c.lines()
        ],
    )  # fmt: skip
    for load in validated.loads:
        _print_order(validated, load)
    for repeated in validated.repeated:
        note(f"disturbed, so measured again or left out: {repeated.what}: {repeated.reason}")
    for trial in validated.missing:
        note(f"not compared, since the machine never stayed the same: {trial}")
    print_table({**_fit(validated), **state, "holds": validated.holds})


def _row(c: "Comparison", line: "Line") -> tuple[Any, ...]:
    name, unit, places = _FIGURES[line.figure]
    return (
        c.trial.load,
        f"{c.trial.share:.0%}",
        c.trial.rate,
        c.num_runs,
        name,
        f"{unit * line.measured:,.{places}f}",
        f"{unit * line.simulated:,.{places}f}",
        f"{line.difference:+.1%}",
        "-" if line.limit is None else f"{line.limit:.0%}",
        "ok" if line.holds else "TOO FAR",
    )


_FIGURES: Mapping[str, tuple[str, float, int]] = {
    "tokens_per_s": ("tokens/s", 1.0, 0),
    "mean_batch": ("requests in a step", 1.0, 2),
    "itl_s": ("between tokens, median, ms", 1e3, 2),
    "ttft_s": ("first token, median, ms", 1e3, 1),
}
"""Names, units and decimal places of what is compared."""


def _print_order(validated: "Validated", load: str) -> None:
    """The settings near the capacity, by latency."""
    from octavo.evaluation.validate.trials import RANKED_SHARE

    ranked = validated.ranked(load)
    print_grid(
        f"{load} at {RANKED_SHARE:.0%}: latency per token by --max-num-seqs, the best measured first; the order is "
        + ("the same" if validated.is_order_right(load) else "NOT THE SAME"),
        ("seqs", "runs", "measured ms", "simulated ms"),
        [
            (
                str(c.trial.max_num_seqs), c.num_runs, f"{1e3 * c.measured.latency_s:.2f}",
                f"{1e3 * c.simulated.latency_s:.2f}",
            )
            for c in ranked
        ],
    )  # fmt: skip
