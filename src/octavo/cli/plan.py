"""`octavo plan`: what fits into memory, from headers and config alone."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.benchmarks.tables import print_grid
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.memory_text import memory_lines, size
from octavo.cli.numbers import parse_count
from octavo.cli.planned_model import (
    MODEL_HELP,
    DeviceOption,
    MemoryOption,
    Sizes,
    machine_for,
    outline_of,
)
from octavo.cli.terminal import Output, OutputOption, print_json

if TYPE_CHECKING:
    from octavo.planning.ledger import Held, Ledger, LedgerRow

DOES_NOT_FIT = 1
NUM_DRAWN = 10_000
"""Requests whose lengths are averaged."""


def _size(help_text: str) -> Any:
    return typer.Option(metavar="INTEGER", parser=parse_count, help=help_text)


@takes_flags(
    "--revision", "--dtype", "--threads", "--max-model-len", "--block-size",
    "--num-blocks-override", "--kv-cache-memory-bytes", "--kv-cache-dtype",
    "--max-num-batched-tokens", "--max-num-seqs",
)  # fmt: skip
def plan(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    *,
    device: DeviceOption = "cpu",
    memory: MemoryOption = None,
    lengths: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Of requests: sharegpt, alpaca, or fixed ones as in 512x128."
        ),
    ] = "sharegpt",
    layers: Annotated[int | None, _size("Instead of a model: its layers.")] = None,
    hidden_size: Annotated[int | None, _size("Width of the residual stream.")] = None,
    heads: Annotated[int | None, _size("Query heads.")] = None,
    kv_heads: Annotated[int | None, _size("Heads of keys and values.")] = None,
    head_dim: Annotated[int | None, _size("Numbers of a head.")] = None,
    intermediate_size: Annotated[int | None, _size("Width of the feed-forward layer.")] = None,
    vocab_size: Annotated[int | None, _size("Rows of the embedding.")] = None,
    context: Annotated[int | None, _size("Longest sequence of the model.")] = None,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Print what fits into memory: weights, scratch, pages, tokens, sequences. Exit 1 if the settings do not fit."""
    # numpy comes with these.
    from octavo.planning.ledger import make_ledger

    sizes = Sizes(
        layers, hidden_size, heads, kv_heads, head_dim, intermediate_size, vocab_size, context
    )
    config = settings.engine(model or "MODEL")
    outline = outline_of(model, config.model.revision, sizes)
    ledger = make_ledger(config, outline, machine_for(device, memory))
    held = _held(lengths, min(outline.spec.max_position_embeddings, 1 << 20))
    if output is Output.JSON:
        print_json({"model": model, "device": device, **_report(ledger, held)})
    else:
        _print(ledger, held, device if memory is None else memory)
    if ledger.chosen.shortage is not None:
        raise typer.Exit(DOES_NOT_FIT)


def _held(lengths: str, max_model_len: int) -> "Held":
    from octavo.planning.ledger import Held
    from octavo.planning.workloads import draw_lengths, population

    drawn = draw_lengths(population(lengths), NUM_DRAWN, max_model_len=max_model_len)
    return Held.by(drawn, lengths)


def _report(ledger: "Ledger", held: "Held") -> dict[str, Any]:
    return {
        "fits": ledger.chosen.shortage is None,
        "rows": [_row_report(row, held) for row in ledger.rows],
        "lengths": held.name,
        "mean_tokens_held": held.mean_tokens,
        "remedies": list(ledger.remedies),
    }


def _row_report(row: "LedgerRow", held: "Held") -> dict[str, Any]:
    memory = row.memory
    return {
        "dtype": row.dtype,
        "kv_cache_dtype": row.kv_cache_dtype,
        "weights_bytes": row.weights,
        "scratch_bytes": row.scratch,
        "kv_bytes_per_token": row.token_bytes,
        "pool_bytes": None if memory is None else memory.pool,
        "reserve_bytes": None if memory is None else memory.reserve,
        "num_blocks": None if row.resolved is None else row.resolved.num_blocks,
        "num_tokens": row.num_tokens,
        "max_model_len": None if row.resolved is None else row.resolved.max_model_len,
        "num_full_sequences": row.num_full_sequences,
        "num_sequences": row.num_sequences(held),
        "shortage": row.shortage,
    }


def _print(ledger: "Ledger", held: "Held", where: str) -> None:
    chosen = ledger.chosen
    if chosen.resolved is not None:
        memory = memory_lines(
            chosen.resolved.memory.lines,
            num_blocks=chosen.resolved.num_blocks,
            block_size=chosen.block_size,
            max_model_len=chosen.resolved.max_model_len,
        )
        typer.echo(f"{chosen.dtype} weights, {chosen.kv_cache_dtype} cache, on {where}")
        for line in memory:
            typer.echo(f"  {line}")
        typer.echo("")
    print_grid(
        "By format (the chosen one first)",
        ("weights", "cache", "weights take", "scratch", "a token takes", "pages", "tokens",
         "full length", held.name),
        [
            (
                row.dtype, row.kv_cache_dtype, size(row.weights), size(row.scratch),
                f"{row.token_bytes / 1024:,.1f} KiB", *_capacity(row, held),
            )
            for row in ledger.rows
        ],
    )  # fmt: skip
    typer.echo(
        f"{held.name}: requests of these lengths that run at once, {held.mean_tokens:,.0f} tokens each on "
        f"average; at most {chosen.resolved.max_num_seqs if chosen.resolved else '-'} (--max-num-seqs)"
    )
    if chosen.shortage is not None:
        typer.echo(f"\nDoes not fit: {chosen.shortage}")
        for command in ledger.remedies or ("no setting near these fits",):
            typer.echo(f"  {command}")


def _capacity(row: "LedgerRow", held: "Held") -> tuple[Any, ...]:
    if row.resolved is None:
        return ("does not fit", None, None, None)
    return (
        f"{row.resolved.num_blocks:,}",
        f"{row.num_tokens:,}",
        f"{row.num_full_sequences:,} x {row.resolved.max_model_len:,}",
        f"{row.num_sequences(held):,}",
    )
