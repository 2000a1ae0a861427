"""`octavo eval accuracy`."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.tables import percent
from octavo.cli.flags import FLAGS, Settings, takes_flags
from octavo.cli.numbers import parse_count
from octavo.cli.pull import MODEL_HELP, with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL, DTYPES, KV_CACHE_DTYPES, EngineConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.evaluation.accuracy import Divergence, Stretch
    from octavo.evaluation.accuracy_bounds import Mode
    from octavo.models.model import Model

WEIGHT_FLAGS = ("--dtype", "--quantization")
"""Each choice of these is a way to hold weights."""
ALIASES = ("float", "fp8_e4m3")
"""Choices that mean the same as another."""
CACHES = tuple(dtype for dtype in KV_CACHE_DTYPES if dtype not in ("auto", *ALIASES))

COLUMNS = ("weights", "cache", "mean KL (nat)", "max KL", "top-1", "perplexity", "bound")


@takes_flags("--tokenizer", "--revision", "--threads", "--block-size")
def accuracy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    *,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Natural text, e.g. bench/text/prose.txt.")
    ] = None,
    golden: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A golden file: its continuations.")
    ] = None,
    modes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Values of --dtype and --quantization, as in auto,bfloat16 [default: all of --dtype].",
        ),
    ] = None,
    kv_cache_dtypes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Values of --kv-cache-dtype [default: all but auto]."),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            metavar="INTEGER", parser=parse_count, help="Tokens of the text that are predicted."
        ),
    ] = 8000,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Measure how far each mode is from float32 with a float32 cache, and hold it to its bound.

    Text and golden continuations are given token by token; at each the distributions over the whole
    vocabulary are compared. Prints a table of markdown for each text. The exit status is 1 if a mode
    misses its bound.
    """
    # numpy and tokenizers take longer to import than the whole of `--help`.
    from octavo.evaluation.accuracy_bounds import Mode, with_baselines
    from octavo.models.model import load_model

    if tokens < 1:
        raise ConfigError(f"--tokens must be at least 1; given: {tokens}")
    weights = _names("--modes", modes, known=_weight_settings(), default=DTYPES)
    caches = _names("--kv-cache-dtypes", kv_cache_dtypes, known=CACHES, default=CACHES)
    wanted = with_baselines(Mode(w, c) for w in weights for c in caches)
    config = with_fetched_model(settings.engine(model))
    loaded = load_model(Path(config.model.model))
    texts = _texts(config, loaded, text, golden, tokens)
    _report(output, model, _lines(_measure(config, loaded, wanted, texts)))


def _report(output: Output, model: str, lines: list[dict[str, Any]]) -> None:
    held = all(line["within_bound"] for line in lines)
    state = {"model": model, "all_within_bounds": held}
    if output is Output.JSON:
        print_json({"modes": lines, **state})
    else:
        _print(lines)
        print_table(state)
    if not held:
        raise typer.Exit(1)


def _weight_settings() -> dict[str, str]:
    """Each way to hold weights, with the field of `ModelConfig` that it is a value of."""
    return {
        choice: flag.target.removeprefix("model.")
        for flag in FLAGS
        if flag.name in WEIGHT_FLAGS
        for choice in flag.choices
        if choice not in ALIASES
    }


def _names(
    flag: str, text: str | None, *, known: Collection[str], default: Sequence[str]
) -> list[str]:
    if text is None:
        return [name for name in default if name in known]
    given = text.split(",")
    for name in given:
        if name not in known:
            raise ConfigError(f"{flag} takes {', '.join(known)}; given: {name}")
    return given


def _texts(
    config: EngineConfig, model: "Model", text: Path | None, golden: Path | None, num_tokens: int
) -> "dict[str, list[Stretch]]":
    """What is read, by the name of its file."""
    from octavo.evaluation.accuracy import WINDOW_TOKENS, golden_stretches, text_stretches
    from octavo.evaluation.golden import read_golden
    from octavo.text.assets import load_text_assets

    texts: dict[str, list[Stretch]] = {}
    if golden is not None:
        texts[golden.name] = golden_stretches(read_golden(golden))
    if text is not None:
        tokenizer = load_text_assets(config.model, None).tokenizer
        texts[text.name] = text_stretches(
            tokenizer.encode(_read(text), add_special_tokens=False),
            num_tokens,
            beginning=tokenizer.encode(""),
            window=min(WINDOW_TOKENS, model.spec.max_position_embeddings),
        )
    if not texts:
        raise ConfigError("there is nothing to compare on: give --text FILE, --golden FILE or both")
    return texts


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text: {path}: {error}") from error


def _measure(
    config: EngineConfig,
    model: "Model",
    modes: "Sequence[Mode]",
    texts: "Mapping[str, Sequence[Stretch]]",
) -> "dict[str, dict[Mode, Divergence]]":
    """For each text and mode what lies between the mode and float32."""
    from octavo.evaluation.accuracy import measure
    from octavo.evaluation.accuracy_bounds import EXACT
    from octavo.evaluation.forced import num_blocks_for
    from octavo.evaluation.runners import opened_runner

    longest = max(len(stretch) for stretches in texts.values() for stretch in stretches)
    num_blocks = num_blocks_for([longest], config.cache.block_size)
    found: dict[str, dict[Mode, Divergence]] = {name: {} for name in texts}
    with (
        progress_bar() as progress,
        opened_runner(_config_of(config, EXACT), model, num_blocks, progress) as (exact, _),
    ):
        for mode in modes:
            stage = f"{mode.weights}, cache {mode.kv_cache_dtype}: "
            with ExitStack() as stack:
                runner = exact
                if mode != EXACT:
                    opened = opened_runner(_config_of(config, mode), model, num_blocks)
                    runner, _ = stack.enter_context(opened)
                for name, stretches in texts.items():
                    found[name][mode] = measure(
                        stretches, runner, exact, partial(progress, stage + name)
                    )
    return found


def _config_of(config: EngineConfig, mode: "Mode") -> EngineConfig:
    weights: dict[str, Any] = {_weight_settings()[mode.weights]: mode.weights}
    return replace(
        config,
        model=replace(config.model, **weights),
        cache=replace(config.cache, kv_cache_dtype=mode.kv_cache_dtype),
    )


def _lines(found: "Mapping[str, Mapping[Mode, Divergence]]") -> list[dict[str, Any]]:
    """One for each text and mode, with the bound and whether it holds."""
    from octavo.evaluation.accuracy_bounds import is_within, limit_of

    lines: list[dict[str, Any]] = []
    for text, divergences in found.items():
        for mode, divergence in divergences.items():
            limit = limit_of(mode, divergences)
            lines.append(
                {
                    "text": text,
                    **asdict(mode),
                    **asdict(divergence),
                    "perplexity_change": divergence.perplexity_change,
                    "bound": limit,
                    "within_bound": is_within(divergence, limit),
                }
            )
    return lines


def _print(lines: Sequence[dict[str, Any]]) -> None:
    """A table of markdown for each text, padded so that it can be read as it stands."""
    for text in dict.fromkeys(line["text"] for line in lines):
        own = [line for line in lines if line["text"] == text]
        print(  # noqa: T201  # a command's result
            f"{text}: {own[0]['num_positions']:,} positions; perplexity of float32: "
            f"{own[0]['float32_perplexity']:.3f}\n"
        )
        rows = [list(COLUMNS), ["---"] * len(COLUMNS), *map(_cells, own)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print(f"| {' | '.join(padded)} |")  # noqa: T201
        print()  # noqa: T201


def _cells(line: dict[str, Any]) -> list[str]:
    bound = "-" if line["bound"] is None else f"{line['bound']:.3g}"
    return [
        line["weights"], line["kv_cache_dtype"], f"{line['mean_kl']:.5f}", f"{line['max_kl']:.3g}",
        percent(line["top1_agreement"]), f"{line['perplexity_change']:+.2%}",
        bound if line["within_bound"] else f"{bound}, MISSED",
    ]  # fmt: skip
