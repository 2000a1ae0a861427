"""Options that the simulations share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from octavo.cli.numbers import parse_count
from octavo.cli.planned_model import DeviceOption, MemoryOption

ModelArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A name, a path, a hub id, or a published model as numbers: opt-13b, opt-66b, opt-175b, llama-13b.",
    ),
]
CostsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="FILE",
        help="Measured costs of `octavo bench profile`, not the data sheet's.",
    ),
]
WorkloadOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--workload",
        metavar="NAME|FILE",
        help="sharegpt, alpaca, fixed lengths as in 512x128, or a trace (JSON lines, Azure, BurstGPT, Mooncake).",
    ),
]
RateOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="NUMBER",
        help="Requests a second, at random [default: 1, or as the trace recorded them].",
    ),
]
RequestsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--requests",
        metavar="INTEGER",
        parser=parse_count,
        help="Requests, or conversations [default: 1000, or the whole trace].",
    ),
]
SeedOption: TypeAlias = Annotated[
    int, typer.Option("--seed", metavar="INTEGER", help="The same seed gives the same result.")
]
AnswersOption: TypeAlias = Annotated[
    int, typer.Option("-n", metavar="INTEGER", help="Answers to each prompt.")
]
PolicyOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="paged|max|pow2|oracle|static",
        help="paged is Octavo; max, pow2 and oracle reserve contiguous memory; static batches end together.",
    ),
]
PriceOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--price", metavar="NUMBER", help="Of a machine for an hour, in any currency."),
]
ProcessesOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--processes", metavar="INTEGER", help="Processes to simulate in [default: the cores]."
    ),
]

DEFAULT_BLOCK_SIZE = 16
BlockSizeOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--block-size",
        metavar="INTEGER",
        help="Tokens in a page: any number from 1; kernels read pages of 16, 32, 64 and 128.",
    ),
]


SwapBandwidthOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--swap-bandwidth",
        metavar="NUMBER",
        help="GB a second that go to --swap-space, or come back [default: 2, a fast disk].",
    ),
]


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What the machine is made of."""

    device: DeviceOption = "cpu"
    memory: MemoryOption = None
    costs: CostsOption = None
    swap_bandwidth: SwapBandwidthOption = None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What requests look like."""

    workload: WorkloadOption = "sharegpt"
    n: AnswersOption = 1
    prefix_tokens: Annotated[
        int,
        typer.Option(
            "--prefix-tokens",
            metavar="INTEGER",
            parser=parse_count,
            help="Tokens that prompts have in common.",
        ),
    ] = 0
    prefixes: Annotated[
        int, typer.Option("--prefixes", metavar="INTEGER", help="Different common beginnings.")
    ] = 1
    turns: Annotated[
        int, typer.Option("--turns", metavar="INTEGER", help="Requests of a conversation.")
    ] = 1
    pause: Annotated[
        float,
        typer.Option("--pause", metavar="SECONDS", help="From an answer to the next turn."),
    ] = 10.0
    seed: SeedOption = 0
