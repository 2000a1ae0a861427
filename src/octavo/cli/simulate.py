"""`octavo simulate`: what a machine would do with a load, before there is one."""

import typer

from octavo.cli.simulation.fleet import fleet
from octavo.cli.simulation.paper import paper
from octavo.cli.simulation.run import run
from octavo.cli.simulation.sweep import sweep
from octavo.cli.simulation.validate import validate

simulate_app = typer.Typer(help="Simulate loads with the real scheduler.", no_args_is_help=True)
simulate_app.command()(run)
simulate_app.command()(sweep)
simulate_app.command()(fleet)
simulate_app.command()(paper)
simulate_app.command()(validate)


@simulate_app.callback()
def _simulate() -> None:
    """Simulate loads with the real scheduler."""
