"""`octavo bench profile`."""

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, note, print_result, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError

SHORTEST_S = 4.0


@takes_flags(
    "--revision", "--dtype", "--backend", "--threads", "--block-size", "--kv-cache-dtype",
    "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def profile(
    *,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Where the costs are written.")],
    model: ModelOption = DEFAULT_MODEL,
    seconds: Annotated[float, typer.Option(metavar="NUMBER", help="Time to measure.")] = 40.0,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Measure steps of all sizes on this machine, and write what they cost for `octavo simulate --costs`."""
    from octavo.evaluation.step_profile import WatchedEngine, profile_steps, profile_wakes
    from octavo.machine import inspect_machine
    from octavo.planning.costs import write_costs
    from octavo.planning.figures import spread
    from octavo.planning.fitting import fit_costs, relative_errors

    if seconds < SHORTEST_S:
        raise ConfigError(f"--seconds must be at least {SHORTEST_S:g}; given: {seconds}")
    config = with_fetched_model(settings.engine(model))
    with progress_bar() as progress, WatchedEngine(config, progress) as watched:
        ready = watched.ready
        probe = BandwidthProbe(ready.num_threads, config.backend)
        steps = profile_steps(
            watched.engine, watched.keeper, watched.span, vocab_size=ready.vocab_size,
            max_model_len=ready.max_model_len, max_num_seqs=ready.max_num_seqs, seconds=seconds, progress=progress,
        )  # fmt: skip
        wakes = profile_wakes(
            watched.engine, watched.keeper, watched.span, vocab_size=ready.vocab_size,
            max_model_len=ready.max_model_len,
        )  # fmt: skip
        probe.again()
    costs = fit_costs(steps, wakes, inspect_machine().cpu_model)
    write_costs(costs, to)
    note(f"wrote {to}")
    errors = spread(map(abs, relative_errors(costs, steps)))
    assert errors is not None  # a fit needs steps
    report = {
        "num_steps": len(steps),
        "wake_s": costs.wake_s,
        "relative_error_p50": errors.p50,
        "relative_error_p90": errors.p90,
        "model": model,
        **engine_state(ready),
        **probe.state(),
    }
    print_result(report, output)
