"""`octavo bench structured`."""

from dataclasses import asdict, replace
from typing import Annotated

import typer

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import engine_state, without_speculation
from octavo.cli.benchmarks.tables import percent
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.numbers import parse_count
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL
from octavo.errors import ConfigError

PROMPT = "Rivers, mountains and cities of Europe, as JSON:"


@takes_flags("--revision", "--dtype", "--backend", "--threads", "--block-size", "--kv-cache-dtype")
def structured(
    *,
    model: ModelOption = DEFAULT_MODEL,
    num_seqs: Annotated[
        int,
        typer.Option(metavar="INTEGER", parser=parse_count, help="Sequences that decode at once."),
    ] = 32,
    steps: Annotated[
        int, typer.Option(metavar="INTEGER", parser=parse_count, help="Tokens of each sequence.")
    ] = 64,
    rounds: Annotated[
        int, typer.Option(metavar="INTEGER", parser=parse_count, help="Runs of each, in turns.")
    ] = 5,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Decode with a JSON schema for each sequence and without, in turns; print what the grammars cost."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.engine.build import build_engine
    from octavo.evaluation.structured import measure_grammar_cost
    from octavo.text.assets import load_text_assets

    if min(num_seqs, steps, rounds) < 1:
        raise ConfigError(
            f"num_seqs, steps and rounds must be at least 1; given: {num_seqs}, {steps}, {rounds}"
        )
    config = settings.engine(model, max_num_seqs=num_seqs)
    blocks = num_seqs * (steps // config.cache.block_size + 8)
    config = without_speculation(
        with_fetched_model(replace(config, cache=replace(config.cache, num_blocks=blocks)))
    )
    with progress_bar() as progress:
        built = build_engine(config, progress=progress)
        try:
            cost = measure_grammar_cost(
                built.engine,
                load_text_assets(config.model, None).tokenizer.encode(PROMPT),
                num_seqs=num_seqs, num_steps=steps, num_rounds=rounds, progress=progress,
            )  # fmt: skip
        finally:
            built.engine.close()
    state = {"model": model, **engine_state(built.ready), "sampling": "greedy, past end tokens"}
    if output is Output.JSON:
        print_json({**asdict(cost), **state})
    else:
        print_table({**asdict(cost), "cost": percent(cost.cost), **state})
