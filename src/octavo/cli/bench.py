"""`octavo bench`: how fast, measured here and now."""

import typer

from octavo.cli.benchmarks.kernels import kernels
from octavo.cli.benchmarks.latency import latency
from octavo.cli.benchmarks.profile import profile
from octavo.cli.benchmarks.replay import replay
from octavo.cli.benchmarks.serve import serve
from octavo.cli.benchmarks.throughput import throughput

bench_app = typer.Typer(help="Measure speed.", no_args_is_help=True)
bench_app.command()(throughput)
bench_app.command()(latency)
bench_app.command()(serve)
bench_app.command()(kernels)
bench_app.command()(profile)
bench_app.command()(replay)


@bench_app.callback()
def _bench() -> None:
    """Measure speed."""
