"""`octavo simulate fleet`."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.planned_model import DeviceOption, MemoryOption
from octavo.cli.simulation.machines import Wanted, WantedLoad, requests_of, setup_of
from octavo.cli.simulation.options import (
    AnswersOption,
    CostsOption,
    ModelArgument,
    PauseOption,
    PrefixesOption,
    PrefixOption,
    PriceOption,
    ProcessesOption,
    RateOption,
    RequestsOption,
    SeedOption,
    TurnsOption,
    WorkloadOption,
)
from octavo.cli.simulation.text import ms, report, setup_state
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import choice_of
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.planning.figures import Figures
    from octavo.planning.fleet import Fleet
    from octavo.planning.requests import SimRequest


@takes_flags(
    "--revision", "--dtype", "--max-model-len", "--block-size", "--num-blocks-override",
    "--kv-cache-memory-bytes", "--kv-cache-dtype", "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
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
    device: DeviceOption = "cpu",
    memory: MemoryOption = None,
    costs: CostsOption = None,
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
    setup = setup_of(Wanted(model, device, memory, costs, "paged"), settings)
    load = WantedLoad(workload, rate, requests, seed, n, prefix_tokens, prefixes, turns, pause)
    made = requests_of(load, setup.max_model_len)
    fleets = [Fleet(setup, replicas, policy) for policy in policies]
    found = _simulate(fleets, made, processes or inspect_machine().num_threads)
    state = {
        **setup_state(setup), "replicas": replicas, "requests": len(made), "workload": workload,
        "rate": rate, "seed": seed,
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
        ("routing", "tokens/s", "ttft ms", "p99", "itl ms", "p99", "requests in a step", "preempted", "cost/M"),
        [
            (
                name, f.output_tokens_per_s, ms(f.ttft_s, "p50"), ms(f.ttft_s, "p99"),
                ms(f.itl_s, "p50"), ms(f.itl_s, "p99"), f.mean_batch, f.num_preemptions,
                None if price is None else f.cost_per_million_tokens(price),
            )
            for name, f in found.items()
        ],
    )  # fmt: skip
    print_table(state)
