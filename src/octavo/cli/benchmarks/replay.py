"""`octavo bench replay`."""

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.simulation.loads import requests_of
from octavo.cli.simulation.options import (
    AnswersOption,
    LoadOptions,
    RateOption,
    RequestsOption,
    SeedOption,
    WorkloadOption,
)
from octavo.cli.simulation.text import report, table
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL


@takes_flags(
    "--revision", "--dtype", "--backend", "--threads", "--max-model-len", "--block-size",
    "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype",
    "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def replay(
    *,
    model: ModelOption = DEFAULT_MODEL,
    workload: WorkloadOption = "sharegpt",
    rate: RateOption = None,
    requests: RequestsOption = 64,
    n: AnswersOption = 1,
    seed: SeedOption = 0,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Run a load of `octavo simulate run` on the real engine, and print the same figures, measured."""
    from octavo.evaluation.replay import replay as run_replay
    from octavo.evaluation.step_profile import WatchedEngine
    from octavo.planning.figures import figures_of

    config = with_fetched_model(settings.engine(model, max_num_queued_reqs=1 << 20))
    with progress_bar() as progress, WatchedEngine(config, progress) as watched:
        ready = watched.ready
        load = LoadOptions(workload, n, seed=seed)
        made = requests_of(load, rate, requests, ready.max_model_len)
        made = [request.in_vocabulary(ready.vocab_size) for request in made]
        probe = BandwidthProbe(ready.num_threads, config.backend)
        recorder = run_replay(watched.engine, watched.keeper, watched.span, made, progress)
        probe.again()
    figures = figures_of([recorder])
    state = {
        "model": model,
        "workload": workload,
        "rate": rate,
        **engine_state(ready),
        **probe.state(),
    }
    if output is Output.JSON:
        print_json({**report(figures, None), **state})
    else:
        print_table({**table(figures, None), **state})
