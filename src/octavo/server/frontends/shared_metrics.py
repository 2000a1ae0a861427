"""What several front ends measure, as one: each writes its numbers into a file, and whoever is asked adds them up.

The files lie in the engine's private folder, usually in memory, and are replaced as a whole. A front end that takes the
place of one that has died goes on from its numbers, so that no counter ever falls.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from octavo.server.metrics import Metrics
from octavo.server.serving import Serving

INTERVAL_S = 0.5
"""How old the numbers of the other front ends may be."""


class Snapshot(msgspec.Struct, frozen=True):
    """The numbers of one front end."""

    num_open: int
    num_slow_clients: int
    num_finished: dict[str, int]
    histograms: dict[str, tuple[list[int], float]]
    """Counts and total, by name."""


class SharedMetrics:
    """The numbers of all front ends, for one of them."""

    def __init__(self, folder: Path, index: int) -> None:
        self._folder = folder
        self._own = folder / f"metrics-{index}"

    def restore(self, metrics: Metrics) -> None:
        """Take over the numbers of a front end that was in this place before."""
        for snapshot in self._read([self._own]):
            _add(metrics, snapshot)

    async def publish(self, serving: Serving) -> None:
        """Write one's own numbers again and again, until cancelled."""
        written = b""
        while True:
            written = self.write(serving, written)
            await asyncio.sleep(INTERVAL_S)

    def write(self, serving: Serving, written: bytes = b"") -> bytes:
        """Write one's own numbers, unless they are what has been written; returns them."""
        data = msgspec.msgpack.encode(_snapshot(serving.metrics, serving.num_open))
        if data != written and self._folder.exists():  # it goes with the server
            temporary = self._own.with_suffix(".new")
            temporary.write_bytes(data)
            temporary.replace(self._own)
        return data

    def total(self, own: Metrics) -> Metrics:
        """One's own numbers and those of the others."""
        total = Metrics()
        _add(total, _snapshot(own, 0))
        for snapshot in self._read(self._others()):
            _add(total, snapshot)
        return total

    def num_open_elsewhere(self) -> int:
        """Requests that the other front ends are answering."""
        return sum(snapshot.num_open for snapshot in self._read(self._others()))

    def _others(self) -> list[Path]:
        return [path for path in self._folder.glob("metrics-*[0-9]") if path != self._own]

    def _read(self, paths: list[Path]) -> Iterator[Snapshot]:
        for path in paths:
            if path.exists():
                yield msgspec.msgpack.decode(path.read_bytes(), type=Snapshot)


def _snapshot(metrics: Metrics, num_open: int) -> Snapshot:
    return Snapshot(
        num_open,
        metrics.num_slow_clients,
        dict(metrics.num_finished),
        {name: histogram.state() for name, histogram in metrics.histograms()},
    )


def _add(metrics: Metrics, snapshot: Snapshot) -> None:
    metrics.num_slow_clients += snapshot.num_slow_clients
    metrics.num_finished.update(snapshot.num_finished)
    for name, histogram in metrics.histograms():
        histogram.add(*snapshot.histograms[name])
