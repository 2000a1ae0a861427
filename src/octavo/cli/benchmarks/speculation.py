"""`octavo bench speculation`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from octavo.cli.benchmarks.options import ModelOption
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state, without_speculation
from octavo.cli.benchmarks.tables import percent, print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.numbers import parse_count
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL, EngineConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.evaluation.speculation import Gain

CONTEXT = 4096
"""Room for a prompt and its answer."""
_PromptsOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--prompts",
        metavar="FILE",
        help="JSON lines of {id, kind, text}, e.g. bench/text/requests.jsonl.",
    ),
]


@takes_flags(
    "--revision", "--dtype", "--backend", "--threads", "--block-size", "--kv-cache-dtype",
    "--speculative-config",
)  # fmt: skip
def speculation(
    *,
    prompts: _PromptsOption,
    model: ModelOption = DEFAULT_MODEL,
    max_tokens: Annotated[
        int,
        typer.Option(metavar="INTEGER", parser=parse_count, help="Tokens of each answer."),
    ] = 200,
    rounds: Annotated[
        int,
        typer.Option(metavar="INTEGER", parser=parse_count, help="Runs of each, with and without."),
    ] = 3,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Answer prompts one at a time, greedy, with speculation and without in turns; print the gain."""
    # The engine takes longer to import than the whole of `--help`.
    from octavo.engine.build import build_engine
    from octavo.evaluation.speculation import measure_speculation, read_prompts

    if min(max_tokens, rounds) < 1:
        raise ConfigError(
            f"max_tokens and rounds must be at least 1; given: {max_tokens}, {rounds}"
        )
    items = read_prompts(prompts)
    config = _config(settings, model)
    with progress_bar() as progress:
        plain = build_engine(without_speculation(config), progress=progress)
        guessing = build_engine(config)
        try:
            probe = BandwidthProbe(plain.ready.num_threads, config.backend)
            gains = measure_speculation(
                plain.engine, guessing.engine, items, _encoder(config),
                max_tokens=max_tokens, num_rounds=rounds, progress=progress,
            )  # fmt: skip
            probe.again()
        finally:
            plain.engine.close()
            guessing.engine.close()
    state = {
        "model": model,
        **engine_state(guessing.ready),
        **probe.state(),
        "sampling": "greedy, past end tokens",
        "compared_with": "speculation off, in turns",
    }
    _print(gains, {**_total(gains), **state}, output)


def _config(settings: Settings, model: str) -> EngineConfig:
    config = settings.engine(model, max_num_seqs=1)
    blocks = -(-CONTEXT // config.cache.block_size)
    return with_fetched_model(
        replace(config, cache=replace(config.cache, num_blocks=blocks), speculation=True)
    )


def _encoder(config: EngineConfig) -> Any:
    """A message as the model reads it: in its chat template if it has one."""
    from octavo.text.assets import load_text_assets

    assets = load_text_assets(config.model, None)

    def encode(text: str) -> list[int]:
        if assets.chat_template is None:
            return assets.tokenizer.encode(text)
        rendered = assets.chat_template.render([{"role": "user", "content": text}])
        return assets.tokenizer.encode(rendered, add_special_tokens=False)

    return encode


def _row(gain: "Gain") -> dict[str, Any]:
    return {**asdict(gain), "acceptance_rate": gain.acceptance_rate}


def _total(gains: "list[Gain]") -> dict[str, Any]:
    from octavo.evaluation.percentiles import median

    drafted = sum(gain.num_draft_tokens for gain in gains)
    accepted = sum(gain.num_accepted_tokens for gain in gains)
    return {
        "speedup_median": median([gain.speedup for gain in gains]),
        "speedup_min": min(gain.speedup for gain in gains),
        "acceptance_rate": accepted / drafted if drafted else None,
    }


def _print(gains: "list[Gain]", state: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        print_json({"prompts": list(map(_row, gains)), **state})
        return
    print_grid(
        "One request at a time, greedy",
        ("prompt", "kind", "prompt tokens", "tokens", "plain tok/s", "with tok/s", "gain", "accepted"),
        [
            (
                gain.id, gain.kind, gain.num_prompt_tokens, gain.num_output_tokens,
                gain.plain_tokens_per_s, gain.guessing_tokens_per_s, f"{gain.speedup:.2f}x",
                "-" if gain.acceptance_rate is None else percent(gain.acceptance_rate),
            )
            for gain in gains
        ],
    )  # fmt: skip
    print_table(state)
