"""A comparison as a page of a document."""

from collections.abc import Sequence

from octavo.evaluation.comparison.peers.peer import shown
from octavo.evaluation.comparison.record import Record
from octavo.evaluation.comparison.results import Result

_HEAD = ("row", "ours", "against", "ours", "its", "times better", "range", "wanted", "pairs")


def markdown(results: Sequence[Result], record: Record) -> str:
    """The table, under which conditions it came about, and what was tried, dropped and skipped."""
    conduct = record.conduct
    versions = [
        f"{peer}: {', '.join(f'{name} {version}' for name, version in packages.items())}"
        for peer, packages in record.versions.items()
    ]
    head = f"Octavo {conduct.octavo}, {conduct.cpu}, {conduct.num_threads} threads"
    lines = [
        f"{'; '.join((head, *versions))}.",
        "",
        _line(_HEAD),
        _line(["---"] * len(_HEAD)),
        *(_line(_cells(result)) for result in results),
        "",
        *(f"- {remark}" for remark in remarks(results, record)),
    ]
    return "\n".join(lines) + "\n"


def remarks(results: Sequence[Result], record: Record) -> list[str]:
    """What a table has no room for."""
    pairs = dict.fromkeys((result.row, result.ours, result.peer, result.note) for result in results)
    found = [f"{row}, {ours} / {peer}: {note}" for row, ours, peer, note in pairs if note]
    for choice in record.choices:
        for setting, value in choice.tried:
            found.append(f"tried: {choice.row}, {choice.peer} with {shown(setting)}: {value:,.1f}")
    for result in results:
        name = f"{result.row}, {result.ours} / {result.peer}"
        found += [f"dropped: {name}: {reason}" for reason in result.verdict.dropped]
    for skipped in record.skipped:
        found.append(f"skipped: {skipped.row or 'all rows'}, {skipped.peer}: {skipped.reason}")
    return list(dict.fromkeys(found))


def _cells(result: Result) -> list[str]:
    values = [_number(value) for value in (result.our_value, result.peer_value)]
    ratio = result.verdict.median
    return [
        f"{result.title}, {result.figure}", result.ours, result.peer, *values,
        "-" if ratio is None else f"{ratio:.2f}", result.shown_range, result.shown_goal, result.shown_pairs,
    ]  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
