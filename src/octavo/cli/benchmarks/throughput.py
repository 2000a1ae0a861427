"""`octavo bench throughput`."""

from dataclasses import asdict

from octavo.cli.benchmarks.options import ModelOption, WorkloadOption
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state, without_speculation
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_result, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.engine.queue_bounds import NO_QUEUE_LIMIT


@takes_flags(
    "--revision", "--dtype", "--quantization", "--backend", "--threads", "--max-model-len", "--block-size",
    "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype", "--enable-prefix-caching",
    "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def throughput(
    *,
    workload: WorkloadOption,
    model: ModelOption = DEFAULT_MODEL,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Run a workload, all requests at once, greedy and past end tokens; print tokens per second."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.engine.build import build_engine
    from octavo.evaluation.throughput import read_workload, run_workload

    items = read_workload(workload)
    # All at once, however many.
    config = without_speculation(
        settings.engine(model, max_num_queued_reqs=len(items), max_num_queued_tokens=NO_QUEUE_LIMIT)
    )
    config = with_fetched_model(config)
    with progress_bar() as progress:
        built = build_engine(config, progress=progress)
        try:
            probe = BandwidthProbe(built.ready.num_threads, config.backend)
            result = run_workload(built.engine, items, built.ready, progress)
            probe.again()
        finally:
            built.engine.close()
    report = {
        "output_tokens_per_s": result.output_tokens_per_s,
        "prompt_tokens_per_s": result.prompt_tokens_per_s,
        **asdict(result),
        "model": model,
        **engine_state(built.ready),
        **probe.state(),
        "workload": workload.name,
    }
    print_result(report, output)
