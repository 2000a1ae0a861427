"""`octavo simulate fleet`."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.tables import percent, print_grid
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
    PriceOption,
    ProcessesOption,
    RateOption,
    RequestsOption,
)
from octavo.cli.simulation.text import ms, report, setup_state
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import choice_of
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.planning.figures import Figures
    from octavo.planning.fleet import Fleet
    from octavo.planning.requests import SimRequest


@takes_flags(*SETUP_FLAGS, *STEP_FLAGS)
@takes_options(machine=MachineOptions, load=LoadOptions)
def fleet(
    model: ModelArgument = "smollm2",
    *,
    replicas: Annotated[int, typer.Option(metavar="INTEGER", help="Machines.")] = 4,
    routing: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Of round-robin, least-loaded, prefix-aware; each is simulated."
        ),
    ] = "round-robin,least-loaded,prefix-aware",
    machine: MachineOptions,
    block_size: BlockSizeOption = DEFAULT_BLOCK_SIZE,
    load: LoadOptions,
    rate: RateOption = None,
    requests: RequestsOption = None,
    price: PriceOption = None,
    processes: ProcessesOption = None,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Simulate machines behind a router, for each way of routing. The rate is that of all machines together."""
    from octavo.machine import inspect_machine
    from octavo.planning.fleet import Fleet, Routing

    if replicas < 1:
        raise ConfigError(f"--replicas must be at least 1; given: {replicas}")
    policies = [choice_of(Routing, "--routing", name) for name in routing.split(",")]
    setup = setup_of(model, machine, settings, block_size=block_size)
    made = requests_of(load, rate, requests, setup.max_model_len)
    fleets = [Fleet(setup, replicas, policy) for policy in policies]
    found = _simulate(fleets, made, processes or inspect_machine().num_threads)
    state = {
        **setup_state(setup), "replicas": replicas, "requests": len(made), "workload": load.workload,
        "rate": rate, "seed": load.seed,
    }  # fmt: skip
    fleet_price = None if price is None else price * replicas
    if output is Output.JSON:
        print_json({"routing": {k: report(v, fleet_price) for k, v in found.items()}, **state})
    else:
        _print(found, fleet_price, state)


def _simulate(
    fleets: "Sequence[Fleet]", requests: "list[SimRequest]", num_processes: int
) -> "dict[str, Figures]":
    from octavo.planning.figures import figures_of

    found = {}
    with ProcessPoolExecutor(num_processes) as executor, progress_bar() as progress:
        for fleet in fleets:
            name = fleet.routing.value
            recorders = fleet.run(requests, executor=executor, progress=partial(progress, name))
            found[name] = figures_of(recorders)
    return found


def _print(found: "dict[str, Figures]", price: float | None, state: dict[str, Any]) -> None:
    print_grid(
        "By routing",
        ("routing", "tokens/s", "ttft ms", "p99", "itl ms", "p99", "requests in a step", "cached", "preempted", "cost/M"),
        [
            (
                name, f.output_tokens_per_s, ms(f.ttft_s, "p50"), ms(f.ttft_s, "p99"),
                ms(f.itl_s, "p50"), ms(f.itl_s, "p99"), f.mean_batch, percent(f.cached_share), f.num_preemptions,
                None if price is None else f.cost_per_million_tokens(price),
            )
            for name, f in found.items()
        ],
    )  # fmt: skip
    print_table(state)
