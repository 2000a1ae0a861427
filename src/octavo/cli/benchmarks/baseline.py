"""`octavo bench baseline`."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.benchmarks.options import WorkloadOption, parse_counts
from octavo.cli.benchmarks.tables import percent, print_grid
from octavo.cli.numbers import parse_count
from octavo.cli.pull import MODEL_HELP, fetch
from octavo.cli.terminal import Output, OutputOption, print_json, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.evaluation.baseline import Experience
    from octavo.evaluation.comparison.peers.peer import Job, ModelFiles

MB = 1e6


def baseline(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    *,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The Python of your setup, with transformers in it [default: one is set up in the cache].",
        ),
    ] = None,
    workload: WorkloadOption = Path("bench/workloads/sharegpt64.jsonl"),
    requests: Annotated[
        int, typer.Option(metavar="INTEGER", parser=parse_count, help="Take the first so many.")
    ] = 16,
    batch: Annotated[
        str, typer.Option(metavar="LIST", help="Sizes of static batches, as in 1,8.")
    ] = "1,8",
    output: OutputOption = Output.TEXT,
) -> None:
    """Profile a Hugging Face setup, and put Octavo beside it: where a migration starts.

    All requests are there at the start. The setup runs them in static batches, in order; Octavo serves them.
    """
    # The engine and the clients' libraries take longer to import than the whole of `--help`.
    from octavo.evaluation.comparison.peers.peer import Job, PeerError
    from octavo.evaluation.comparison.rows import warm_up
    from octavo.evaluation.throughput import read_workload
    from octavo.machine import inspect_machine

    if requests < 1:
        raise ConfigError(f"--requests must be at least 1; given: {requests}")
    sizes = parse_counts("--batch", batch)
    items = tuple(read_workload(workload)[:requests])
    with progress_bar() as progress:
        files = _files(model, progress)
        job = Job(files, items, warm_up(items), inspect_machine().num_threads)
        try:
            found = _profile(job, python, sizes, progress)
        except PeerError as error:
            raise ConfigError(f"the setup cannot be profiled: {error}") from error
    report = {"model": model, "workload": workload.name, "num_requests": len(items)}
    if output is Output.JSON:
        print_json({"systems": [asdict(one) for one in found], **report})
    else:
        _print(found, len(items), model)


def _files(model: str, progress: Progress) -> "ModelFiles":
    """The model as both read it: a GGUF file is written as a folder of bfloat16 for transformers."""
    from octavo.evaluation.comparison.bf16_folder import cached_bf16_folder
    from octavo.evaluation.comparison.peers.peer import ModelFiles

    path = fetch(model)
    if path.is_dir():
        return ModelFiles(path, path)
    return ModelFiles(path, cached_bf16_folder(path, progress))


def _profile(
    job: "Job", python: Path | None, sizes: Sequence[int], progress: Progress
) -> "list[Experience]":
    """The setup in each batch size, then Octavo."""
    from octavo.evaluation.baseline import profile_transformers
    from octavo.evaluation.comparison.peers.transformers import TransformersPeer, folder_of

    if python is None:
        peer = TransformersPeer()
        peer.set_up(progress)
        python = peer.python
    found = []
    for size in sizes:
        progress(f"transformers, batches of {size}", 0.0)
        found.append(profile_transformers(python, folder_of(job), job, size))
        progress(f"transformers, batches of {size}", 1.0)
    progress("octavo", 0.0)
    found.append(_octavo(job))
    progress("octavo", 1.0)
    return found


def _octavo(job: "Job") -> "Experience":
    """The same requests, and the same bfloat16 weights."""
    from octavo.evaluation.baseline import experience_here
    from octavo.evaluation.comparison.peers.octavo import bench, write_workload
    from octavo.evaluation.comparison.peers.transformers import folder_of
    from octavo.models.footprint import block_bytes
    from octavo.models.model import load_model

    folder = folder_of(job)
    with tempfile.TemporaryDirectory() as temporary:
        workload = write_workload(Path(temporary) / "requests.jsonl", job.items)
        arguments = ("--workload", str(workload), "--model", str(folder))
        served = bench("serve", *arguments)
        offline = bench("throughput", *arguments)
    per_token = block_bytes(load_model(folder).spec, 1, str(offline["kv_cache_dtype"]))
    return experience_here(served, offline, per_token)


def _print(found: "Sequence[Experience]", num_requests: int, model: str) -> None:
    print_grid(
        f"{num_requests} requests at once, {model}",
        ("", "first token s (p50)", "tok/s per user (p50)", "requests/min", "KV cache at most MB", "of it tokens"),
        [
            (
                one.system, one.first_token_s, one.tokens_per_s_per_user, one.requests_per_min,
                one.cache.peak_bytes / MB, percent(one.cache.token_share),
            )
            for one in found
        ],
    )  # fmt: skip
