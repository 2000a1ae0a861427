"""`octavo bench sharing`."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.options import ModelOption, parse_counts
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state, without_speculation
from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL, EngineConfig

if TYPE_CHECKING:
    from octavo.core.step import Runner
    from octavo.engine.build import BuiltEngine
    from octavo.evaluation.sharing import CountedEngine

CLIENT_OWN_TOKENS, CLIENT_OUTPUT_TOKENS = 30, 32
MOST_SAMPLES = 8


@takes_flags(
    "--revision", "--dtype", "--quantization", "--backend", "--threads", "--max-model-len", "--block-size",
    "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype", "--max-num-batched-tokens",
)  # fmt: skip
def sharing(
    *,
    model: ModelOption = DEFAULT_MODEL,
    counts: Annotated[
        str, typer.Option(metavar="LIST", help="Samples, and widths of beam searches.")
    ] = "2,4,6",
    prompt: Annotated[int, typer.Option(help="Tokens that are shared.")] = 1000,
    tokens: Annotated[int, typer.Option(help="Tokens of each sample.")] = 128,
    clients: Annotated[int, typer.Option(help="Requests that begin with the same prompt.")] = 32,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Measure what sharing saves: pages of samples and beams, and the time of clients with the same instructions."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.evaluation.sharing import CountedEngine

    base = with_fetched_model(without_speculation(settings.engine(model)))
    with progress_bar() as progress:
        progress("loading", 0.0)
        cached = CountedEngine(_builder(base))
        try:
            uncached = CountedEngine(
                _builder(replace(base, cache=replace(base.cache, prefix_caching=False)))
            )
            try:
                ready = cached.built.ready
                probe = BandwidthProbe(ready.num_threads, base.backend)
                report = _measured(
                    cached, uncached, parse_counts("--counts", counts), prompt, tokens, clients
                )
                probe.again()
            finally:
                uncached.engine.close()
        finally:
            cached.engine.close()
    state = {"model": model, "prompt_tokens": prompt, **engine_state(ready), **probe.state()}
    if output is Output.JSON:
        print_json({**report, **state})
        return
    _print(report)
    print_table(state)


def _builder(config: EngineConfig) -> "Callable[[Callable[[Runner], Runner]], BuiltEngine]":
    from octavo.engine.build import build_engine

    return lambda wrap: build_engine(config, wrap_runner=wrap)


def _measured(
    cached: "CountedEngine",
    uncached: "CountedEngine",
    counts: tuple[int, ...],
    prompt: int,
    tokens: int,
    clients: int,
) -> dict[str, Any]:
    from octavo.evaluation.sharing import (
        measure_beams,
        measure_clients,
        measure_samples,
        measure_together,
    )

    rows = [measure_samples(cached, n, prompt, tokens) for n in counts]
    rows += [measure_beams(cached, n, prompt, tokens) for n in counts]
    together = measure_together(cached, uncached, MOST_SAMPLES, prompt, tokens)
    crowd = measure_clients(
        cached, uncached, clients, prompt, CLIENT_OWN_TOKENS, CLIENT_OUTPUT_TOKENS
    )
    return {
        "sharing": [asdict(row) for row in rows],
        "samples": {**asdict(together), "peak_ratio": together.peak_ratio},
        "clients": {**asdict(crowd), "speedup": crowd.speedup},
    }


def _print(report: dict[str, Any]) -> None:
    print_grid(
        "Pages at the peak",
        ("sequences", "count", "held", "booked", "without sharing", "saved", "predicted", "steps off", "computed tokens"),
        [
            (
                row["kind"], row["count"], row["peak_pages"], row["booked_peak_pages"], row["peak_pages_unshared"],
                row["peak_saved"], row["peak_saved_predicted"], row["num_steps_off"], row["num_computed_tokens"],
            )
            for row in report["sharing"]
        ],
    )  # fmt: skip
    samples, clients = report["samples"], report["clients"]
    print_grid(
        "Together and apart",
        ("what", "count", "together", "apart", "ratio"),
        [
            ("samples: pages at the peak", samples["n"], samples["peak_pages_together"], samples["peak_pages_apart"],
             samples["peak_ratio"]),
            ("samples: computed tokens", samples["n"], samples["computed_together"], samples["computed_apart"],
             samples["computed_apart"] / samples["computed_together"]),
            ("clients: seconds, with the cache and without", clients["num_clients"], clients["seconds_cached"],
             clients["seconds_uncached"], clients["speedup"]),
            ("clients: computed tokens", clients["num_clients"], clients["computed_cached"],
             clients["computed_uncached"], clients["computed_uncached"] / clients["computed_cached"]),
        ],
    )  # fmt: skip
