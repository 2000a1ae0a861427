"""`octavo bench`: how fast, measured here and now."""

import typer

from octavo.cli.benchmarks.baseline import baseline
from octavo.cli.benchmarks.compare import compare
from octavo.cli.benchmarks.engine import engine
from octavo.cli.benchmarks.kernels import kernels
from octavo.cli.benchmarks.latency import latency
from octavo.cli.benchmarks.profile import profile
from octavo.cli.benchmarks.replay import replay
from octavo.cli.benchmarks.serve import serve
from octavo.cli.benchmarks.sharing import sharing
from octavo.cli.benchmarks.speculation import speculation
from octavo.cli.benchmarks.structured import structured
from octavo.cli.benchmarks.throughput import throughput

bench_app = typer.Typer(help="Measure speed.", no_args_is_help=True)
bench_app.command()(throughput)
bench_app.command()(latency)
bench_app.command()(serve)
bench_app.command()(kernels)
bench_app.command()(profile)
bench_app.command()(replay)
bench_app.command()(engine)
bench_app.command()(sharing)
bench_app.command()(speculation)
bench_app.command()(structured)
bench_app.command()(compare)
bench_app.command()(baseline)


@bench_app.callback()
def _bench() -> None:
    """Measure speed."""
