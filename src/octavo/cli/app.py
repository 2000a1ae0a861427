"""The `octavo` command. Its parts import what is heavy when they run, so that `--help` is quick."""

from typing import Annotated

import typer

from octavo.cli.bench import bench_app
from octavo.cli.chat import chat
from octavo.cli.doctor import doctor
from octavo.cli.eval import eval_app
from octavo.cli.generate import generate
from octavo.cli.plan import plan
from octavo.cli.pull import pull
from octavo.cli.run_batch import run_batch
from octavo.cli.serve import serve
from octavo.cli.simulate import simulate_app
from octavo.cli.vllm_arguments import VllmCommand

app = typer.Typer(
    name="octavo",
    help="Serve large language models through paged attention.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # `--max_model_len` is `--max-model-len`, as in vLLM.
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    rich_markup_mode=None,  # whole option names, ready to copy, whatever the terminal's width
)
app.command(cls=VllmCommand)(serve)
app.command()(generate)
app.command()(chat)
app.command("run-batch")(run_batch)
app.command()(pull)
app.command()(doctor)
app.command()(plan)
app.add_typer(bench_app, name="bench")
app.add_typer(eval_app, name="eval")
app.add_typer(simulate_app, name="simulate")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # only here

        typer.echo(version("octavo"))
        raise typer.Exit


@app.callback()
def octavo(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Serve large language models through paged attention."""
