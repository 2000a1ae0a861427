"""`octavo simulate run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Settings, takes_flags
from octavo.cli.option_groups import takes_options
from octavo.cli.simulation.loads import requests_of
from octavo.cli.simulation.machines import SETUP_FLAGS, STEP_FLAGS, setup_of
from octavo.cli.simulation.options import (
    DEFAULT_BLOCK_SIZE,
    BlockSizeOption,
    LoadOptions,
    MachineOptions,
    ModelArgument,
    PolicyOption,
    PriceOption,
    RateOption,
    RequestsOption,
)
from octavo.cli.simulation.text import report, setup_state, table
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table

if TYPE_CHECKING:
    from octavo.planning.recorder import Recorder
    from octavo.planning.requests import SimRequest
    from octavo.planning.setups import MachineSetup


@takes_flags(*SETUP_FLAGS, *STEP_FLAGS)
@takes_options(machine=MachineOptions, load=LoadOptions)
def run(
    model: ModelArgument = "smollm2",
    *,
    machine: MachineOptions,
    policy: PolicyOption = "paged",
    block_size: BlockSizeOption = DEFAULT_BLOCK_SIZE,
    load: LoadOptions,
    rate: RateOption = None,
    requests: RequestsOption = None,
    price: PriceOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with the memory to step through."
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option("--chart", metavar="FILE", help="Write a picture (PNG).")
    ] = None,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Simulate one machine under a load: throughput, latencies, where the memory goes, what it costs."""
    from octavo.planning.figures import figures_of

    if chart is not None:
        from octavo.planning.charts import check_chart_library

        check_chart_library()
    setup = setup_of(model, machine, settings, block_size=block_size, policy_name=policy)
    made = requests_of(load, rate, requests, setup.max_model_len)
    state = {**setup_state(setup), "workload": load.workload, "rate": rate, "seed": load.seed}
    recorder = setup.run(made) if html is None else _with_map(setup, made, state, html)
    figures = figures_of([recorder])
    if chart is not None:
        from octavo.planning.charts import draw_run

        draw_run(recorder, chart)
        note(f"wrote {chart}")
    if output is Output.JSON:
        print_json({**report(figures, price), **state})
    else:
        print_table({**table(figures, price), **state})


def _with_map(
    setup: "MachineSetup", requests: "list[SimRequest]", state: dict[str, Any], html: Path
) -> "Recorder":
    """Simulate step by step, and write the page."""
    from octavo.planning.figures import figures_of
    from octavo.planning.memory_map import map_of
    from octavo.planning.report import html_report

    machine = setup.machine()
    memory_map = map_of(machine.batcher)
    if memory_map is not None:
        machine.look_after_steps(memory_map.after_step)
    for request in requests:
        machine.offer(request)
    recorder = machine.run()
    title = f"{setup.model.name}, {setup.policy.value}, {state['workload']}"
    html.write_text(html_report(title, state, figures_of([recorder]), recorder, memory_map))
    note(f"wrote {html}")
    return recorder
