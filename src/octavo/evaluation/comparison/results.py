"""What a record says: for each pairing the ratios that count, and those that do not with their reasons."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.evaluation.comparison.pairs import (
    PairRatio,
    Verdict,
    drop_reason,
    times_better,
    verdict,
)
from octavo.evaluation.comparison.peers.peer import shown
from octavo.evaluation.comparison.record import Attempt, Record
from octavo.evaluation.comparison.rows import Pairing, Row
from octavo.evaluation.comparison.works import Figure
from octavo.evaluation.percentiles import median


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of one pairing in one row."""

    row: str
    title: str
    figure: str
    ours: str
    peer: str
    our_value: float | None
    """Median over the pairs that count."""
    peer_value: float | None
    verdict: Verdict
    at_least: float | None
    note: str
    """How the peer ran, and what it was spared."""

    @property
    def is_reached(self) -> bool | None:
        """Whether it is as good as wanted; None where nothing is wanted or known."""
        ratio = self.verdict.median
        return None if ratio is None or self.at_least is None else ratio >= self.at_least

    @property
    def shown_range(self) -> str:
        """From the worst pair that counts to the best."""
        ratios = self.verdict.ratios
        return f"{min(ratios):.3g} - {max(ratios):.3g}" if ratios else "-"

    @property
    def shown_goal(self) -> str:
        """What is wanted, and whether it is so."""
        if self.at_least is None:
            return "-"
        return f"{self.at_least:g}" + {None: "", True: " yes", False: " no"}[self.is_reached]

    @property
    def shown_pairs(self) -> str:
        """How many count, of how many."""
        num_kept = len(self.verdict.ratios)
        return f"{num_kept} of {num_kept + len(self.verdict.dropped)}"


def results_of(rows: Sequence[Row], record: Record) -> list[Result]:
    """All that were measured, in the order of the rows."""
    return [
        _result(row, pairing, figure, record)
        for row in rows
        for pairing in row.pairings
        for figure in row.work.figures
        if record.attempts_of(row.name, pairing.peer)
    ]


def num_kept(row: Row, pairing: Pairing, attempts: Sequence[Attempt]) -> int:
    """Attempts that count for a pairing."""
    pairs = _pairs(pairing, row.work.figures[0], attempts)
    return sum(pair.ratio.dropped is None for pair in pairs)


def report(rows: Sequence[Row], record: Record) -> dict[str, Any]:
    """Everything for a JSON file."""
    return {
        "pairings": [
            {**asdict(result), "median_ratio": result.verdict.median, "reached": result.is_reached}
            for result in results_of(rows, record)
        ],
        "skipped": [asdict(skipped) for skipped in record.skipped],
    }


@dataclass(frozen=True, slots=True)
class _Pair:
    ours: float
    peer: float
    ratio: PairRatio


def _result(row: Row, pairing: Pairing, figure: Figure, record: Record) -> Result:
    pairs = _pairs(pairing, figure, record.attempts_of(row.name, pairing.peer))
    kept = [pair for pair in pairs if pair.ratio.dropped is None]
    return Result(
        row=row.name,
        title=row.title,
        figure=figure.label,
        ours=pairing.ours.label,
        peer=pairing.peer,
        our_value=median([pair.ours for pair in kept]) if kept else None,
        peer_value=median([pair.peer for pair in kept]) if kept else None,
        verdict=verdict([pair.ratio for pair in pairs]),
        at_least=pairing.at_least.get(figure.name),
        note=_note(row, pairing, record),
    )


def _pairs(pairing: Pairing, figure: Figure, attempts: Sequence[Attempt]) -> list[_Pair]:
    found = []
    for attempt in attempts:
        ours, peer = attempt.leg_of(pairing.ours.label), attempt.leg_of(pairing.peer)
        if ours is None or peer is None:
            continue
        a, b = ours.run.figures[figure.name], peer.run.figures[figure.name]
        ratio = times_better(a, b, more_is_better=figure.more_is_better)
        found.append(_Pair(a, b, PairRatio(ratio, drop_reason(ours.conditions, peer.conditions))))
    return found


def _note(row: Row, pairing: Pairing, record: Record) -> str:
    choice = record.choice_of(row.name, pairing.peer)
    parts = [] if choice is None else [shown(choice.chosen)]
    first = record.conduct.first.get(pairing.peer)
    if first is not None and first < len(row.items):
        parts.append(f"the peer ran only the first {first} of {len(row.items)} requests")
    return ", ".join(parts)
