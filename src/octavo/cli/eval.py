"""`octavo eval`: how right, against what others made of the same weights."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import MODEL_HELP, fetch
from octavo.cli.terminal import (
    Output,
    OutputOption,
    Progress,
    print_json,
    print_table,
    progress_bar,
)
from octavo.config import DEFAULT_MODEL, Backend, EngineConfig

if TYPE_CHECKING:
    from octavo.evaluation.golden import Agreement, Golden
    from octavo.models.model import Model

eval_app = typer.Typer(help="Measure how right answers are.", no_args_is_help=True)


@eval_app.callback()
def _eval() -> None:
    """Measure how right answers are."""


@eval_app.command()
@takes_flags(
    "--tokenizer", "--revision", "--dtype", "--backend", "--threads", "--block-size",
    "--kv-cache-dtype",
)  # fmt: skip
def golden(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A golden file.")],
    *,
    model: Annotated[str, typer.Option(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Compare token ids, greedy answers and log-probabilities with a golden file, and the mode with float32."""
    # numpy and tokenizers take longer to import than the whole of `--help`.
    from octavo.evaluation.golden import read_golden, tokenization_differences
    from octavo.models.model import load_model
    from octavo.server.assets import load_text_assets

    wanted = read_golden(file)
    config = settings.engine(model)
    config = settings.engine(str(fetch(model, revision=config.model.revision)))
    assets = load_text_assets(config.model, None)
    different = tokenization_differences(wanted, assets.tokenizer, assets.chat_template)
    loaded = load_model(Path(config.model.model))
    with progress_bar() as progress:
        agreement = _measure(config, loaded, wanted, progress)
    report = {
        "model": model,
        "golden": wanted.model,
        "backend": config.backend.value,
        "dtype": _dtype(config),
        "cases": len(wanted.cases),
        "tokenization_equal": not different,
        "tokenization_differences": different,
        "greedy_identical": agreement.greedy_identical_cases == len(wanted.cases),
        **asdict(agreement),
    }
    if output is Output.JSON:
        print_json(report)
    else:
        print_table(report)


def _measure(
    config: EngineConfig, model: "Model", golden: "Golden", progress: Progress
) -> "Agreement":
    from octavo.evaluation.forced import num_blocks_for
    from octavo.evaluation.golden import measure
    from octavo.evaluation.runners import open_runner

    num_blocks = num_blocks_for(golden.sequence_lengths, config.cache.block_size)
    dtype = _dtype(config)
    runner = open_runner(config, model, dtype=dtype, num_blocks=num_blocks, progress=progress)
    try:
        if dtype == "float32" and config.cache.kv_cache_dtype in ("auto", "float32"):
            return measure(golden, runner, runner, progress)
        exact = replace(config, cache=replace(config.cache, kv_cache_dtype="float32"))
        float32 = open_runner(exact, model, dtype="float32", num_blocks=num_blocks)
        try:
            return measure(golden, runner, float32, progress)
        finally:
            float32.close()
    finally:
        runner.close()


def _dtype(config: EngineConfig) -> str:
    if config.backend is Backend.REFERENCE or config.model.dtype == "float":
        return "float32"
    return config.model.dtype
