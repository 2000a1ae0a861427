"""`octavo run-batch`: a file of requests in, a file of answers out."""

from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import Group, Settings, takes_flags
from octavo.cli.pull import MODEL_HELP, with_fetched_model
from octavo.config import DEFAULT_MODEL, EngineConfig, ServerConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.server.batch.run import BatchCounts

MAX_CONCURRENT = 256


@takes_flags(Group.MODEL, Group.MEMORY, "--chat-template", "--strict-requests")
def run_batch(
    *,
    input_file: Annotated[
        Path,
        typer.Option("--input-file", "-i", metavar="FILE", help="Requests, one a line (JSONL)."),
    ],
    output_file: Annotated[
        Path,
        typer.Option("--output-file", "-o", metavar="FILE", help="Answers, in the same order."),
    ],
    model: Annotated[str, typer.Option(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Keep the answers that are there, and go on after them."),
    ] = False,
    max_concurrent: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests that are open at once.")
    ] = MAX_CONCURRENT,
    settings: Settings,
) -> None:
    """Answer a file of requests in OpenAI's batch format. A line that is wrong is told in its answer."""
    # The application takes longer to import than the whole of `--help`.
    from octavo.server.batch.files import num_answered

    if not input_file.is_file():
        raise ConfigError(f"there is no file {input_file}")
    if output_file.resolve() == input_file.resolve():
        raise ConfigError("the input file cannot be the output file")
    done = num_answered(input_file, output_file) if resume else 0
    engine = with_fetched_model(settings.engine(model))
    server = replace(settings.server(), served_model_names=(model,))
    import asyncio  # 7 ms, which --help need not wait for

    counts = asyncio.run(_run(engine, server, (input_file, output_file), done, max_concurrent))
    kept = f"{done} kept, " if done else ""
    typer.echo(
        f"{output_file}: {kept}{counts.num_answered} answered, {counts.num_refused} refused, "
        f"{counts.num_unreadable} not readable",
        err=True,
    )


async def _run(
    engine: EngineConfig,
    server: ServerConfig,
    files: tuple[Path, Path],
    done: int,
    max_concurrent: int,
) -> "BatchCounts":
    from octavo.cli.terminal import progress_bar
    from octavo.engine.process import start_engine_process
    from octavo.server.batch.files import input_lines
    from octavo.server.batch.run import batch_app, run_batch

    total = sum(1 for _ in input_lines(files[0])) - done
    process = start_engine_process(engine)
    async with batch_app(engine, server, process) as app:
        with closing(files[1].open("ab" if done else "wb")) as output, progress_bar() as progress:
            return await run_batch(
                app,
                islice(input_lines(files[0]), done, None),
                output,
                max_concurrent=max_concurrent,
                on_line=lambda counts: progress("requests", counts.num_lines / max(1, total)),
            )
