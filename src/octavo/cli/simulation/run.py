"""`octavo simulate run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Settings, takes_flags
from octavo.cli.planned_model import DeviceOption, MemoryOption
from octavo.cli.simulation.machines import Wanted, WantedLoad, requests_of, setup_of
from octavo.cli.simulation.options import (
    AnswersOption,
    CostsOption,
    ModelArgument,
    PauseOption,
    PolicyOption,
    PrefixesOption,
    PrefixOption,
    PriceOption,
    RateOption,
    RequestsOption,
    SeedOption,
    TurnsOption,
    WorkloadOption,
)
from octavo.cli.simulation.text import report, setup_state, table
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table

if TYPE_CHECKING:
    from octavo.planning.recorder import Recorder
    from octavo.planning.requests import SimRequest
    from octavo.planning.setups import MachineSetup


@takes_flags(
    "--revision", "--dtype", "--max-model-len", "--block-size", "--num-blocks-override",
    "--kv-cache-memory-bytes", "--kv-cache-dtype", "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def run(
    model: ModelArgument = "smollm2",
    *,
    device: DeviceOption = "cpu",
    memory: MemoryOption = None,
    costs: CostsOption = None,
    policy: PolicyOption = "paged",
    workload: WorkloadOption = "sharegpt",
    rate: RateOption = None,
    requests: RequestsOption = 1000,
    n: AnswersOption = 1,
    prefix_tokens: PrefixOption = 0,
    prefixes: PrefixesOption = 1,
    turns: TurnsOption = 1,
    pause: PauseOption = 10.0,
    seed: SeedOption = 0,
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

    setup = setup_of(Wanted(model, device, memory, costs, policy), settings)
    load = WantedLoad(workload, rate, requests, seed, n, prefix_tokens, prefixes, turns, pause)
    recorder = _simulate(setup, requests_of(load, setup.max_model_len), workload, html)
    figures = figures_of([recorder])
    if chart is not None:
        from octavo.planning.charts import draw_run

        draw_run(recorder, chart)
        note(f"wrote {chart}")
    state = {**setup_state(setup), "workload": workload, "rate": rate, "seed": seed}
    if output is Output.JSON:
        print_json({**report(figures, price), **state})
    else:
        print_table({**table(figures, price), **state})


def _simulate(
    setup: "MachineSetup", requests: "list[SimRequest]", workload: str, html: Path | None
) -> "Recorder":
    from octavo.planning.figures import figures_of
    from octavo.planning.memory_map import map_of
    from octavo.planning.report import html_report

    machine = setup.machine()
    memory_map = map_of(machine.batcher) if html is not None else None
    if memory_map is not None:
        machine.look_after_steps(memory_map.after_step)
    for request in requests:
        machine.offer(request)
    machine.run()
    recorder = machine.recorder
    recorder.close(machine.clock, machine.batcher.num_preemptions)
    if html is not None:
        settings: dict[str, Any] = {**setup_state(setup), "workload": workload}
        title = f"{setup.model.name}, {setup.policy.value}, {workload}"
        page = html_report(title, settings, figures_of([recorder]), recorder, memory_map)
        html.write_text(page)
        note(f"wrote {html}")
    return recorder
