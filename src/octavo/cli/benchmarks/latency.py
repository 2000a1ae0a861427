"""`octavo bench latency`."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from octavo.cli.benchmarks.options import ModelOption, StepsOption, parse_counts
from octavo.cli.benchmarks.state import BandwidthProbe, engine_state, without_speculation
from octavo.cli.benchmarks.tables import percent, print_grid, scaled
from octavo.cli.flags import Settings, takes_flags
from octavo.cli.numbers import parse_count
from octavo.cli.pull import with_fetched_model
from octavo.cli.terminal import Output, OutputOption, print_json, print_table, progress_bar
from octavo.config import DEFAULT_MODEL, Backend, EngineConfig
from octavo.errors import ConfigError
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.core.step import Runner
    from octavo.engine.build import BuiltEngine
    from octavo.evaluation.latency import Decode, Prefill, SingleStream
    from octavo.evaluation.op_costs import OpShare

GB = 1e9


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is to be measured."""

    batches: tuple[int, ...]
    context: int
    num_prompts: int
    prompt_len: int
    num_steps: int
    is_profiled: bool


@dataclass(frozen=True, slots=True)
class _Measured:
    decode: "list[Decode]"
    prefill: "Prefill"
    single_stream: "SingleStream"


@takes_flags(
    "--revision", "--dtype", "--quantization", "--backend", "--threads", "--block-size", "--kv-cache-dtype",
    "--max-num-batched-tokens",
)  # fmt: skip
def latency(
    *,
    model: ModelOption = DEFAULT_MODEL,
    batch: Annotated[
        str, typer.Option(metavar="LIST", help="Sequences that decode together, as in 1,8,64.")
    ] = "1,8,32,64",
    context: Annotated[
        int,
        typer.Option(metavar="INTEGER", parser=parse_count, help="Tokens each of them attends to."),
    ] = 330,
    steps: StepsOption = 128,
    prompts: Annotated[
        int, typer.Option(metavar="INTEGER", parser=parse_count, help="Prompts to compute.")
    ] = 16,
    prompt_tokens: Annotated[
        int, typer.Option(metavar="INTEGER", parser=parse_count, help="Tokens of each prompt.")
    ] = 1024,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time of a step goes, op by op.")
    ] = False,
    output: OutputOption = Output.TEXT,
    settings: Settings,
) -> None:
    """Measure steps: decoding at one context length, prompts, and a single stream through the engine."""
    shape = _Shape(parse_counts("--batch", batch), context, prompts, prompt_tokens, steps, profile)
    for name in ("context", "num_prompts", "prompt_len", "num_steps"):
        if getattr(shape, name) < 1:
            raise ConfigError(f"{name} must be at least 1; given: {getattr(shape, name)}")
    config = _config(settings, model, shape)
    with progress_bar() as progress:
        built, runner = _build(config, progress)
        try:
            probe = BandwidthProbe(built.ready.num_threads, config.backend)
            measured = _measure(built, runner, shape, progress)
            probe.again()
        finally:
            built.engine.close()
    state = {"model": model, **engine_state(built.ready), **probe.state(), "page_order": "random"}
    shares = _profile(built, measured, probe.mean) if profile else None
    if output is Output.JSON:
        print_json({**_report(measured, shares), **state})
    else:
        _print(measured, shares)
        print_table(state)


def _config(settings: Settings, model: str, shape: _Shape) -> EngineConfig:
    """The engine's settings, with a pool that holds one measurement at a time."""
    from octavo.evaluation.latency import num_blocks_needed  # imports the engine's messages

    config = without_speculation(settings.engine(model, max_num_seqs=max(shape.batches)))
    if shape.is_profiled and config.backend is Backend.REFERENCE:
        raise ConfigError("--profile needs the native backend; given: --backend reference")
    longest = max(shape.context + shape.num_steps, shape.prompt_len)
    blocks = num_blocks_needed(
        max(shape.batches),
        shape.context,
        shape.num_prompts,
        shape.prompt_len,
        config.cache.block_size,
    )
    blocks = max(blocks, -(-longest // config.cache.block_size))
    return with_fetched_model(
        replace(
            config,
            model=replace(config.model, max_model_len=longest),
            cache=replace(config.cache, num_blocks=blocks),
        )
    )


def _build(config: EngineConfig, progress: Progress) -> "tuple[BuiltEngine, Runner]":
    """An engine, and the runner inside."""
    from octavo.engine.build import build_engine  # takes longer to import than `--help`

    runners: list[Runner] = []

    def keep(runner: "Runner") -> "Runner":
        runners.append(runner)
        return runner

    built = build_engine(config, progress=progress, wrap_runner=keep)
    return built, runners[0]


def _measure(
    built: "BuiltEngine", runner: "Runner", shape: _Shape, progress: Progress
) -> _Measured:
    from octavo.evaluation.latency import (
        Sequences,
        measure_decode,
        measure_prefill,
        measure_single_stream,
    )
    from octavo.evaluation.profiles import ProfiledRunner

    ready, budget = built.ready, built.ready.max_num_batched_tokens
    profiled = cast(ProfiledRunner, runner) if shape.is_profiled else None

    def sequences(count: int, length: int) -> Sequences:
        return Sequences(count, length, block_size=ready.block_size, vocab_size=ready.vocab_size)

    single_stream = measure_single_stream(
        built.engine, shape.context, shape.num_steps, ready.vocab_size, progress
    )
    prefill = measure_prefill(
        runner, sequences(shape.num_prompts, shape.prompt_len), shape.prompt_len, budget,
        profiled=profiled, progress=progress,
    )  # fmt: skip
    decode = measure_decode(
        runner, sequences(max(shape.batches), shape.context), shape.batches, shape.context,
        shape.num_steps, budget, profiled=profiled, progress=progress,
    )  # fmt: skip
    return _Measured(decode, prefill, single_stream)


def _profile(
    built: "BuiltEngine", measured: _Measured, read_bandwidth: float | None
) -> "dict[str, list[OpShare]]":
    """Where the time went, for each batch size and for the prompts."""
    from octavo.evaluation.op_costs import CostModel, op_shares, total_costs
    from octavo.evaluation.peaks import calibrate

    model, ready = built.model, built.ready
    costs = CostModel(model.spec, model.weights, ready.dtype, ready.kv_cache_dtype)
    prefill = measured.prefill
    assert prefill.profile is not None
    peaks = calibrate(ready.num_threads, read_bandwidth)
    shares = {}
    for decode in measured.decode:
        assert decode.profile is not None
        cost = costs.step(decode.plan)
        shares[f"batch {decode.batch}"] = op_shares(decode.profile, cost, peaks)
    cost = total_costs([costs.step(plan) for plan in prefill.plans])
    shares["prompts"] = op_shares(prefill.profile, cost, peaks)
    return shares


def _report(measured: _Measured, shares: "dict[str, list[OpShare]] | None") -> dict[str, Any]:
    prefill, stream = measured.prefill, measured.single_stream
    return {
        "decode": [
            {
                "batch": decode.batch,
                "context": decode.context,
                "output_tokens_per_s": decode.output_tokens_per_s,
                "step_ms": asdict(decode.step_ms),
            }
            for decode in measured.decode
        ],
        "prefill": {
            "num_prompts": prefill.num_prompts,
            "prompt_len": prefill.prompt_len,
            "prompt_tokens_per_s": prefill.tokens_per_s,
            "passes_s": prefill.passes_s,
        },
        "single_stream": {
            **asdict(stream),
            "output_tokens_per_s": stream.output_tokens_per_s,
        },
        "profile": shares and {name: list(map(asdict, rows)) for name, rows in shares.items()},
    }


def _print(measured: _Measured, shares: "dict[str, list[OpShare]] | None") -> None:
    print_grid(
        f"Decoding, {measured.decode[0].context} tokens of context each",
        ("batch", "tok/s", "step ms", "min", "p90", "p99"),
        [
            (d.batch, d.output_tokens_per_s, d.step_ms.p50, d.step_ms.min, d.step_ms.p90, d.step_ms.p99)
            for d in measured.decode
        ],
    )  # fmt: skip
    prefill, stream = measured.prefill, measured.single_stream
    print_grid(
        "Prompts",
        ("prompts", "tokens each", "tok/s"),
        [(prefill.num_prompts, prefill.prompt_len, prefill.tokens_per_s)],
    )
    pause = stream.token_ms
    print_grid(
        "A single stream through the engine",
        ("prompt", "tokens", "tok/s", "first token ms", "between tokens ms", "p99"),
        [
            (
                stream.prompt_len, stream.num_output_tokens, stream.output_tokens_per_s,
                stream.ttft_ms, pause and pause.p50, pause and pause.p99,
            )
        ],
    )  # fmt: skip
    for name, rows in (shares or {}).items():
        print_grid(
            f"Where the time went: {name}",
            ("op", "ms", "share", "GB/s", "of bandwidth", "GOP/s", "of roofline"),
            [
                (
                    row.op, row.ms, percent(row.share), scaled(row.bytes_per_s, GB),
                    percent(row.bandwidth_share), scaled(row.operations_per_s, GB), percent(row.roofline_share),
                )
                for row in rows
            ],
        )  # fmt: skip
