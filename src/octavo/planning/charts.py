"""Pictures of simulations, as PNG files. Needs the extra `plots` (matplotlib)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError
from octavo.planning.figures import MemoryShares
from octavo.planning.recorder import Recorder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {
    "tokens": "#2b8a3e",
    "reserved": "#74c0fc",
    "internal": "#ffa8a8",
    "external": "#868e96",
    "free": "#f1f3f5",
}
"""Where memory goes, and in which colour; the report has the same."""
DPI = 120


def check_chart_library() -> None:
    """To be asked before long work. Raises ConfigError without matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401  # an extra: most installs have none
    except ImportError as error:
        raise ConfigError(
            "charts need matplotlib, which is in an extra: pip install 'octavo[plots]'"
        ) from error


def new_figure(
    columns: int, width: float = 10.0, height: float = 3.6
) -> "tuple[Figure, Sequence[Axes]]":
    """An empty picture with axes side by side. Raises ConfigError without matplotlib."""
    check_chart_library()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])


def draw_run(recorder: Recorder, path: Path) -> None:
    """Requests and memory over the time of one run."""
    figure, (left, right) = new_figure(2)
    moments = recorder.timeline.moments
    times = [moment.time_s for moment in moments]
    running = [moment.num_requests for moment in moments]
    waiting = [max(0, n - r) for n, r in zip(recorder.open_at(times), running, strict=True)]
    left.stackplot(
        times, running, waiting, labels=["running", "waiting"], colors=["#2b8a3e", "#ffd43b"]
    )
    left.set(title="requests", xlabel="seconds")
    left.legend(loc="upper left", fontsize="small")
    series = list(zip(*(moment.memory[:5] for moment in moments), strict=True))
    right.stackplot(times, *series, labels=list(PARTS), colors=list(PARTS.values()))
    right.set(title="slots of the memory", xlabel="seconds")
    right.legend(loc="lower left", fontsize="small")
    _save(figure, path)


def draw_memory(shares: Mapping[str, MemoryShares], path: Path) -> None:
    """Where memory went, side by side for several systems."""
    figure, (axes,) = new_figure(1, 8.0)
    below = [0.0] * len(shares)
    for part, colour in PARTS.items():
        values = [100 * getattr(share, part) for share in shares.values()]
        bars = axes.bar(
            list(shares), values, bottom=below, color=colour, label=part, edgecolor="white"
        )
        labels = [f"{value:.1f}" if value >= 3 else "" for value in values]
        axes.bar_label(bars, labels=labels, label_type="center", fontsize="small")
        below = [b + v for b, v in zip(below, values, strict=True)]
    axes.set(ylabel="% of the KV memory", ylim=(0, 100))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    _save(figure, path)


def draw_lines(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
    *,
    log_x: bool = False,
    **labels: Any,
) -> None:
    """Named curves of (x, y)."""
    figure, (axes,) = new_figure(1, 7.0)
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    if log_x:
        axes.set_xscale("log", base=2)
    axes.set(**labels)
    axes.legend(fontsize="small")
    _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    # Without the version and the date, so that the same run gives the same bytes.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
