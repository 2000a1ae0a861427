"""`octavo bench profile`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, note, print_result, progress_bar
from octavo.config import DEFAULT_MODEL, EngineConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.core.step import Runner
    from octavo.engine.build import BuiltEngine
    from octavo.evaluation.step_profile import PlanKeeper
    from octavo.progress import Progress

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
    from octavo.evaluation.step_profile import BATCHES, profile_steps
    from octavo.machine import inspect_machine
    from octavo.planning.costs import write_costs
    from octavo.planning.figures import spread
    from octavo.planning.fitting import fit_costs, relative_errors
    from octavo.planning.work import AttentionSpan

    if seconds < SHORTEST_S:
        raise ConfigError(f"--seconds must be at least {SHORTEST_S:g}; given: {seconds}")
    config = with_fetched_model(settings.engine(model))
    with progress_bar() as progress:
        built, keeper = build_with_keeper(config, progress)
        try:
            probe = BandwidthProbe(built.ready.num_threads, config.backend)
            steps = profile_steps(
                built.engine, keeper, AttentionSpan.of(built.model.spec.layers),
                vocab_size=built.ready.vocab_size, max_model_len=built.ready.max_model_len, seconds=seconds,
                batches=[b for b in BATCHES if b <= built.ready.max_num_seqs], progress=progress,
            )  # fmt: skip
            probe.again()
        finally:
            built.engine.close()
    costs = fit_costs(steps, inspect_machine().cpu_model)
    write_costs(costs, to)
    note(f"wrote {to}")
    errors = spread(map(abs, relative_errors(costs, steps)))
    assert errors is not None  # a fit needs steps
    report = {
        "num_steps": len(steps),
        "relative_error_p50": errors.p50,
        "relative_error_p90": errors.p90,
        "model": model,
        **engine_state(built.ready),
        **probe.state(),
    }
    print_result(report, output)


def build_with_keeper(
    config: EngineConfig, progress: "Progress"
) -> "tuple[BuiltEngine, PlanKeeper]":
    """An engine whose plans can be looked at. It guesses no tokens and finds no prefixes, as the simulator."""
    from octavo.engine.build import build_engine
    from octavo.evaluation.step_profile import PlanKeeper

    keepers: list[PlanKeeper] = []

    def keep(runner: "Runner") -> PlanKeeper:
        keepers.append(PlanKeeper(runner))
        return keepers[0]

    config = replace(
        config,
        speculation=False,
        speculative_config=None,
        cache=replace(config.cache, prefix_caching=False),
    )
    return build_engine(config, progress=progress, wrap_runner=keep), keepers[0]
