"""`octavo eval`: how right, against what others made of the same weights, and against our own float32."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.accuracy import accuracy
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.pull import MODEL_HELP, with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_result, progress_bar
from octavo.config import DEFAULT_MODEL, EngineConfig
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.evaluation.golden import Agreement, Golden
    from octavo.models.model import Model
    from octavo.resolve import ResolvedConfig

_LABELS = {
    "tokenization_equal": "tokenization equal, vs golden",
    "tokenization_differences": "tokenization differences, vs golden",
    "greedy_identical": "greedy identical, vs golden",
    "greedy_identical_cases": "greedy identical cases, vs golden",
    "max_logprob_diff": "max logprob diff (nat), vs golden",
    "mean_kl": "mean KL (nat), vs float32",
    "top1_agreement": "top-1 agreement, vs float32",
    "num_steps": "steps compared",
    "kv_cache_dtype": "kv cache dtype",
}
"""What people read for the names of the JSON: against what each number is measured."""

eval_app = typer.Typer(help="Measure how right answers are.", no_args_is_help=True)


@eval_app.callback()
def _eval() -> None:
    """Measure how right answers are."""


eval_app.command()(accuracy)


@eval_app.command()
@takes_flags(
    "--tokenizer", "--revision", "--dtype", "--quantization", "--backend", "--threads", "--block-size",
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
    from octavo.text.assets import load_text_assets

    wanted = read_golden(file)
    config = with_fetched_model(settings.engine(model))
    assets = load_text_assets(config.model, None)
    different = tokenization_differences(wanted, assets.tokenizer, assets.chat_template)
    loaded = load_model(Path(config.model.model))
    with progress_bar() as progress:
        agreement, resolved = _measure(config, loaded, wanted, progress)
    report = {
        "model": model,
        "golden": wanted.model,
        "backend": resolved.backend.value,
        "dtype": resolved.dtype,
        "kv_cache_dtype": resolved.kv_cache_dtype,
        "cases": len(wanted.cases),
        "tokenization_equal": not different,
        "tokenization_differences": different,
        "greedy_identical": agreement.greedy_identical_cases == len(wanted.cases),
        **asdict(agreement),
    }
    if output is Output.TEXT:
        report = {_LABELS.get(name, name): value for name, value in report.items()}
    print_result(report, output)


def _measure(
    config: EngineConfig, model: "Model", golden: "Golden", progress: Progress
) -> "tuple[Agreement, ResolvedConfig]":
    from octavo.evaluation.forced import num_blocks_for
    from octavo.evaluation.golden import check_vocabulary, measure
    from octavo.evaluation.runners import opened_runner

    check_vocabulary(golden, model.spec.vocab_size)
    num_blocks = num_blocks_for(golden.sequence_lengths, config.cache.block_size)
    with opened_runner(config, model, num_blocks, progress) as (runner, resolved):
        if resolved.dtype == resolved.kv_cache_dtype == "float32":
            return measure(golden, runner, runner, progress), resolved
        with opened_runner(_exact(config), model, num_blocks) as (float32, _):
            return measure(golden, runner, float32, progress), resolved


def _exact(config: EngineConfig) -> EngineConfig:
    return replace(
        config,
        model=replace(config.model, dtype="float32", quantization=None),
        cache=replace(config.cache, kv_cache_dtype="float32"),
    )
