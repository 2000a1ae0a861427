"""`octavo bench`: how fast, measured here and now."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import MODEL_HELP, with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_result, progress_bar
from octavo.config import DEFAULT_MODEL, Backend

if TYPE_CHECKING:
    from octavo.engine.messages import Ready

BANDWIDTH_BYTES = 256 << 20
"""Beyond every cache: what decoding reads its weights at."""

bench_app = typer.Typer(help="Measure speed.", no_args_is_help=True)


@bench_app.callback()
def _bench() -> None:
    """Measure speed."""


@bench_app.command()
@takes_flags(
    "--revision", "--dtype", "--backend", "--threads", "--max-model-len", "--block-size",
    "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype",
    "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def throughput(
    *,
    workload: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON lines of {id, prompt_token_ids, max_tokens}.")
    ],
    model: Annotated[str, typer.Option(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Run a workload, all requests at once, greedy and past end tokens; print tokens per second."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.engine.build import build_engine
    from octavo.evaluation.throughput import read_workload, run_workload

    items = read_workload(workload)
    # All at once, however many.
    config = with_fetched_model(settings.engine(model, max_num_queued_reqs=len(items)))
    with progress_bar() as progress:
        built = build_engine(config, progress=progress)
        try:
            result = run_workload(built.engine, items, built.ready, progress)
        finally:
            built.engine.close()
    report = {
        "output_tokens_per_s": result.output_tokens_per_s,
        "prompt_tokens_per_s": result.prompt_tokens_per_s,
        **asdict(result),
        "model": model,
        **_state(built.ready, config.backend),
        "workload": workload.name,
    }
    print_result(report, output)


def _state(ready: "Ready", backend: Backend) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "speculation": "off",
        "prefix_cache": "off",
        "weight_dtype": ready.dtype,
        "kv_cache_dtype": ready.kv_cache_dtype,
        "block_size": ready.block_size,
        "num_blocks": ready.num_blocks,
        "max_num_seqs": ready.max_num_seqs,
        "max_num_batched_tokens": ready.max_num_batched_tokens,
        "instruction_set": ready.isa,
        "num_threads": ready.num_threads,
        "read_bandwidth_bytes_per_s": _read_bandwidth(ready.num_threads, backend),
    }


def _read_bandwidth(num_threads: int, backend: Backend) -> float | None:
    """Bytes per second; None with the reference backend, which may run where the kernels do not load."""
    if backend is Backend.REFERENCE:
        return None
    from octavo import _C  # compiled: loaded with the native backend only

    bandwidth: float = _C.read_bandwidth(BANDWIDTH_BYTES, num_threads)
    return bandwidth
