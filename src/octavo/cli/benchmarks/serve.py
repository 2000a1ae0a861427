"""`octavo bench serve`."""

import http.client
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from octavo.cli.benchmarks.offline_row import OfflineRow, offline_tokens_per_s
from octavo.cli.benchmarks.options import ModelOption, WorkloadOption
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state, without_speculation
from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.numbers import parse_count
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, note, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL, Backend
from octavo.errors import ConfigError, EngineDeadError, RequestFailedError

if TYPE_CHECKING:
    from octavo.cli.benchmarks.server_process import StartedServer
    from octavo.evaluation.load import Load
    from octavo.evaluation.processes import ProcessUse
    from octavo.evaluation.service import ServiceReport
    from octavo.evaluation.throughput import WorkItem

ASK_TIMEOUT_S = 30.0
SUMMARIES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")


UrlOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="A running server [default: one is started].")
]
ConcurrencyOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER",
        parser=parse_count,
        help="Clients, each with one open request [default: all requests at once].",
    ),
]
RateOption: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="Requests a second at random times (Poisson)."),
]
NumRequestsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="INTEGER",
        parser=parse_count,
        help="Requests to send; beyond the workload it begins anew, prompts turned by a token.",
    ),
]
GoodputOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIMITS",
        help="Count requests within limits of ttft_ms, itl_ms (longest pause), tpot_ms, e2e_ms: ttft_ms:500,itl_ms:50.",
    ),
]
OfflineOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--offline/--no-offline",
        help="First run the same requests without a server, to show what serving costs "
        "(not with --url or --request-rate).",
    ),
]
WARM_CACHE = "on, at the start with the prompts of the warm-up only"
"""Those are the first ones backwards: none of the run begins like them."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the requests come."""

    items: "Sequence[WorkItem]"
    concurrency: int | None
    rate: float | None
    seed: int
    limits: Mapping[str, float] | None
    with_offline: bool


@takes_flags(
    "--revision", "--dtype", "--quantization", "--backend", "--threads", "--max-model-len", "--block-size",
    "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype", "--enable-prefix-caching",
    "--max-num-batched-tokens", "--max-num-seqs", "--api-server-count",
)  # fmt: skip
def serve(
    *,
    workload: WorkloadOption,
    url: UrlOption = None,
    model: ModelOption = DEFAULT_MODEL,
    concurrency: ConcurrencyOption = None,
    request_rate: RateOption = None,
    num_requests: NumRequestsOption = None,
    goodput: GoodputOption = None,
    offline: OfflineOption = True,
    seed: Annotated[int, typer.Option(metavar="INTEGER", help="Of the arrival times.")] = 0,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Measure a server with streaming clients: latencies, throughput, and what the clients themselves cost."""
    plan = _plan(workload, num_requests, concurrency, request_rate, seed, goodput)
    plan = replace(plan, with_offline=offline and url is None and request_rate is None)
    if url is None:
        report, result = _own_server(model, settings, plan)
    else:
        report, result = _given_server(url, plan)
    how = {"concurrency": concurrency, "request_rate": request_rate, "seed": seed}
    report = {**asdict(result), **report, "workload": workload.name, **how}
    if output is Output.JSON:
        print_json(report)
    else:
        _print(result, report)
    if result.num_failed:
        raise typer.Exit(1)


def _plan(
    workload: Path,
    num_requests: int | None,
    concurrency: int | None,
    rate: float | None,
    seed: int,
    goodput: str | None,
) -> _Plan:
    # The clients' libraries take longer to import than the whole of `--help`.
    from octavo.evaluation.load import repeated
    from octavo.evaluation.service import parse_limits
    from octavo.evaluation.throughput import read_workload

    if concurrency is not None and rate is not None:
        raise ConfigError(
            "--concurrency and --request-rate both say when requests are sent: give one; "
            f"given: {concurrency} and {rate}"
        )
    for name, value in (
        ("concurrency", concurrency),
        ("request-rate", rate),
        ("num-requests", num_requests),
    ):
        if value is not None and not value > 0:
            raise ConfigError(f"--{name} must be above 0; given: {value}")
    items = read_workload(workload)
    items = repeated(items, len(items) if num_requests is None else num_requests)
    limits = None if goodput is None else parse_limits(goodput)
    return _Plan(items, concurrency, rate, seed, limits, with_offline=False)


def _own_server(
    model: str, settings: Settings, plan: _Plan
) -> "tuple[dict[str, Any], ServiceReport]":
    from octavo.cli.benchmarks.server_process import started_server
    from octavo.evaluation.service import report_of

    config = without_speculation(settings.engine(model, max_num_queued_reqs=len(plan.items)))
    config = with_fetched_model(config)
    server = replace(settings.server(), port=0, served_model_names=(model,))
    offline = None
    if plan.with_offline:
        offline = offline_tokens_per_s(config, plan.items, plan.concurrency)
    note("starting the server ...")
    with started_server(config, server) as started:
        probe = BandwidthProbe(started.ready.num_threads, config.backend)
        _warm_up(started.url, model, plan)
        front_ends, engine = _processes(started.pid)
        before = _uses(*front_ends, engine)
        load = _run(started.url, model, plan)
        after = _uses(*front_ends, engine)
        probe.again()
        result = report_of(load, plan.limits)
        *cpu, engine_cpu = (b.cpu_s - a.cpu_s for a, b in zip(before, after, strict=True))
        report = {
            **_generator(load),
            "api_server_count": server.api_server_count,
            "front_end_cpu_s": sum(cpu),
            "front_end_cpu_us_per_token": 1e6 * sum(cpu) / max(1, result.num_output_tokens),
            "engine_cpu_s": engine_cpu,
            "pss_bytes": sum(use.pss_bytes for use in after),
            "front_end_pss_bytes": sum(use.pss_bytes for use in after[:-1]),
            **_memory(started),
            "server_start_s": started.start_s,
            "server": "started here",
            "model": model,
            **engine_state(started.ready),
            **({"prefix_cache": WARM_CACHE} if started.ready.prefix_caching else {}),
            **probe.state(),
        }
        if offline is not None:
            share = report["load_generator_cpu_share"] or 0.0
            report |= OfflineRow(result.output_tokens_per_s, offline, share).report()
    return report, result


def _processes(pid: int) -> tuple[list[int], int]:
    """The front ends of a server, with what looks after them, and its engine."""
    from octavo.engine.process import MODULE
    from octavo.evaluation.processes import descendants, runs_module

    pids = [pid, *descendants(pid)]
    engines = [pid for pid in pids if runs_module(pid, MODULE)]
    if len(engines) != 1:
        raise EngineDeadError("the engine process of the server has ended")
    return [pid for pid in pids if pid not in engines], engines[0]


def _uses(*pids: int) -> "list[ProcessUse]":
    from octavo.evaluation.processes import process_use

    try:
        return [process_use(pid) for pid in pids]
    except OSError as error:
        raise EngineDeadError(f"a process of the server has ended: {error}") from error


def _given_server(url: str, plan: _Plan) -> "tuple[dict[str, Any], ServiceReport]":
    """The state of a server that runs already is not known here; only the machine's is."""
    from octavo.evaluation.service import report_of
    from octavo.machine import inspect_machine

    model = _served_model(url)
    probe = BandwidthProbe(inspect_machine().num_threads, Backend.NATIVE)
    _warm_up(url, model, plan)
    load = _run(url, model, plan)
    probe.again()
    state = {"server": url, "model": model, "speculation": "unknown", "prefix_cache": "unknown"}
    return {**_generator(load), **state, **probe.state()}, report_of(load, plan.limits)


def _memory(started: "StartedServer") -> dict[str, int]:
    """The server's own ledger."""
    lines = {line.name.replace(" ", "_"): line.num_bytes for line in started.ready.ledger}
    return {f"ledger_{name}_bytes": num_bytes for name, num_bytes in lines.items()}


def _served_model(url: str) -> str:
    """The name of the first model that a server has. Raises ConfigError if it does not say."""
    from octavo.evaluation.completion_stream import Target

    target = Target.parse(url)
    kind = http.client.HTTPSConnection if target.is_encrypted else http.client.HTTPConnection
    connection = kind(target.host, target.port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", f"{target.path}/v1/models")
        response = connection.getresponse()
        data = response.read()
        return str(json.loads(data)["data"][0]["id"])
    except (
        OSError,
        http.client.HTTPException,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
    ) as error:
        raise ConfigError(
            f"{url}/v1/models names no model: {type(error).__name__} {error}"
        ) from error
    finally:
        connection.close()


def _warm_up(url: str, model: str, plan: _Plan) -> None:
    from octavo.evaluation.completion_stream import Target
    from octavo.evaluation.load import run_load, warm_up_items

    note("warming up ...")
    load = run_load(Target.parse(url), model, warm_up_items(plan.items))
    for answer in load.answers:
        if answer.error is not None:
            raise RequestFailedError(f"a request to warm up failed: {answer.error}")


def _run(url: str, model: str, plan: _Plan) -> "Load":
    from octavo.evaluation.completion_stream import Target
    from octavo.evaluation.load import poisson_arrivals, run_load

    arrivals = None
    if plan.rate is not None:
        arrivals = poisson_arrivals(plan.rate, len(plan.items), plan.seed)
    with progress_bar() as progress:
        return run_load(
            Target.parse(url),
            model,
            plan.items,
            concurrency=plan.concurrency,
            arrivals=arrivals,
            progress=progress,
        )


def _generator(load: "Load") -> dict[str, Any]:
    """What the clients cost. Their share is of all cores that this process may use."""
    num_cpus = len(os.sched_getaffinity(0))
    available = load.elapsed_s * num_cpus
    return {
        "elapsed_s": load.elapsed_s,
        "load_generator_cpu_s": load.generator_cpu_s,
        "load_generator_cpu_share": load.generator_cpu_s / available if available else None,
        "num_cpus": num_cpus,
    }


def _print(result: "ServiceReport", report: Mapping[str, Any]) -> None:
    found = [(name, getattr(result, name)) for name in SUMMARIES]
    print_grid(
        "Latencies, ms",
        ("", "mean", "p50", "p90", "p99", "max"),
        [
            (name.removesuffix("_ms"), s.mean, s.p50, s.p90, s.p99, s.max)
            for name, s in found
            if s is not None
        ],
    )
    failures = [f"{count} x {reason}" for reason, count in result.failures.items()]
    rest = {name: value for name, value in report.items() if name not in SUMMARIES}
    print_table({**rest, "failures": failures})
