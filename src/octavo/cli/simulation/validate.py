"""`octavo simulate validate`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import BandwidthProbe
from octavo.cli.benchmarks.tables import percent, print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.simulation.loads import recorded
from octavo.cli.simulation.options import LoadOptions, RequestsOption
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.evaluation.validation import Comparison, Validated

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

    Wants a machine that does nothing else.
    """
    from octavo.evaluation.validation import Validation
    from octavo.machine import inspect_machine

    for name, value, low in (
        ("--repeats", repeats, 1), ("--profile-seconds", profile_seconds, SHORTEST_PROFILE_S),
    ):  # fmt: skip
        if not value >= low:
            raise ConfigError(f"{name} must be at least {low:g}; given: {value}")
    config = with_fetched_model(settings.engine(model, max_num_queued_reqs=1 << 20))
    longest = config.model.max_model_len or 1 << 30
    loads = {p.stem: recorded(LoadOptions(str(p)), longest)[:requests] for p in traces}
    probe = BandwidthProbe(config.num_threads or inspect_machine().num_threads, config.backend)
    with progress_bar() as progress:
        validated = Validation(
            config, loads, repeats, profile_seconds, progress,
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
                "differences": c.differences(),
                "has_limits": c.has_limits,
                "is_near": c.is_near,
            }
            for c in validated.comparisons
        ],
        "is_order_right": {load: validated.is_order_right(load) for load in validated.loads},
        "fit": _fit(validated),
        "holds": validated.holds,
    }


def _fit(validated: "Validated") -> dict[str, float]:
    from octavo.planning.figures import spread
    from octavo.planning.fitting import relative_errors

    errors = spread(map(abs, relative_errors(validated.costs, validated.steps)))
    assert errors is not None  # a fit needs steps
    return {
        "num_steps": len(validated.steps),
        "wake_s": validated.costs.wake_s,
        "relative_error_p50": errors.p50,
        "relative_error_p90": errors.p90,
    }


def _print(validated: "Validated", state: dict[str, Any]) -> None:
    from octavo.evaluation.validation import LIMITS, RANKED_SHARE

    print_grid(
        "Measured, simulated",
        ("load", "of capacity", "requests/s", "seqs", "tokens/s", "batch", "between tokens ms", "first token ms",
         "differences", ""),
        [_row(c) for c in validated.comparisons],
    )  # fmt: skip
    for load in validated.loads:
        ranked = ", ".join(
            f"{c.trial.max_num_seqs} ({1e3 * c.measured.latency_s:.2f}, {1e3 * c.simulated.latency_s:.2f})"
            for c in validated.ranked(load)
        )
        verdict = "the same" if validated.is_order_right(load) else "not the same"
        typer.echo(
            f"{load} at {RANKED_SHARE:.0%}: seqs by latency per token (ms), best first: {ranked}; the order is {verdict}"
        )
    limits = ", ".join(f"{name} {percent(limit)}" for name, limit in LIMITS.items())
    print_table({**_fit(validated), **state, "limits": limits, "holds": validated.holds})


def _row(c: "Comparison") -> tuple[Any, ...]:
    a, b = c.measured, c.simulated
    verdict = "ok" if c.is_near else "too far"
    return (
        c.trial.load,
        percent(c.trial.share),
        c.trial.rate,
        c.trial.max_num_seqs,
        f"{a.tokens_per_s:,.0f}, {b.tokens_per_s:,.0f}",
        f"{a.mean_batch:.2f}, {b.mean_batch:.2f}",
        f"{1e3 * a.itl_s:.2f}, {1e3 * b.itl_s:.2f}",
        f"{1e3 * a.ttft_s:.1f}, {1e3 * b.ttft_s:.1f}",
        " ".join(f"{100 * d:+.0f}%" for d in c.differences().values()),
        verdict if c.has_limits else "order only",
    )
