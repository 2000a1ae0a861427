"""`octavo bench engine`."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from octavo.cli.benchmarks.options import StepsOption, parse_counts
from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.terminal import Output, OutputOption, print_json, print_table
from octavo.errors import ConfigError

POOLS = (100_000, 1_000_000)
"""Blocks; 100,000 are what 1,024 sequences of 1,500 tokens fill."""
PROMPT_TOKENS = 10_000


def engine(
    *,
    batch: Annotated[
        str, typer.Option(metavar="LIST", help="Sequences that decode together, as in 1,64,1024.")
    ] = "1,64,1024",
    steps: StepsOption = 100,
    output: OutputOption = Output.TEXT,
) -> None:
    """Measure what lies between two runs of the kernels: scheduling, packing, results, messages; and what a page costs the books. No model is run."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.core.sampling_params import SamplingParams
    from octavo.engine.service import spare_collector
    from octavo.evaluation.engine_overhead import measure_overhead
    from octavo.evaluation.page_costs import measure_page_costs

    sampled = SamplingParams(temperature=0.7, top_p=0.9, repetition_penalty=1.1, max_tokens=None)
    batches = parse_counts("--batch", batch)
    spare_collector()  # as the engine process does
    rows = []
    for num_seqs in batches:
        for name, params in (("greedy", None), ("sampled", sampled)):
            for num_blocks in POOLS:
                try:
                    measured = measure_overhead(
                        num_seqs, num_blocks, num_steps=steps, params=params
                    )
                except ValueError as error:
                    raise ConfigError(str(error)) from error
                rows.append({"sampling": name, **asdict(measured), "total_ms": measured.total_ms})
    pages = [asdict(measure_page_costs(num_blocks, PROMPT_TOKENS)) for num_blocks in POOLS]
    state = {
        "context": 330,
        "block_size": 16,
        "speculation": "off",
        "prefix_cache": "on, empty at the start",
    }
    if output is Output.JSON:
        print_json({"steps": rows, "pages": pages, **state})
        return
    _print(rows, pages)
    print_table(state)


def _print(rows: list[dict[str, Any]], pages: list[dict[str, Any]]) -> None:
    print_grid(
        "Between two runs of the kernels, ms",
        ("sequences", "sampling", "blocks", "schedule", "pack", "commit", "report", "total", "open pool"),
        [
            (
                row["num_seqs"], row["sampling"], f"{row['num_blocks']:,}", row["schedule_ms"], row["pack_ms"],
                row["commit_ms"], row["report_ms"], row["total_ms"], row["open_pool_ms"],
            )
            for row in rows
        ],
    )  # fmt: skip
    print_grid(
        "Pages of a prompt, microseconds each",
        ("blocks", "prompt", "not found", "taken", "published", "found", "given back", "taken from the cache"),
        [
            (
                f"{row['num_blocks']:,}", row["prompt_len"], row["miss_us"], row["take_us"], row["publish_us"],
                row["hit_us"], row["free_us"], row["evict_us"],
            )
            for row in pages
        ],
    )  # fmt: skip
