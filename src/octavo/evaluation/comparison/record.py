"""All that a comparison has measured so far, in a file that it can go on from."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ConfigError
from octavo.evaluation.comparison.pairs import is_turned
from octavo.evaluation.comparison.peers.peer import Run, Setting
from octavo.evaluation.comparison.probes import Conditions
from octavo.evaluation.comparison.rows import Pairing, Row


@dataclass(frozen=True, slots=True)
class Leg:
    """One run of one system."""

    system: str
    """A peer's name, or the label of one of ours."""
    setting: Setting
    run: Run
    conditions: Conditions
    num_requests: int
    """Fewer than the row has where a peer got only the first ones."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Legs that ran one after another: each of ours that is set against a peer, and the peer."""

    row: str
    peer: str
    number: int
    """From 0; in odd ones the peer was first."""
    legs: tuple[Leg, ...]

    def leg_of(self, system: str) -> Leg | None:
        """The leg of one system; None if that failed."""
        return next((leg for leg in self.legs if leg.system == system), None)


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that a peer was tried in for a row."""

    row: str
    peer: str
    tried: tuple[tuple[Setting, float], ...]
    """With the figure that each reached."""
    chosen: Setting


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was not measured, and why."""

    row: str
    """Empty: the peer is not here at all."""
    peer: str
    """Or the label of one of ours."""
    reason: str


@dataclass(frozen=True, slots=True)
class Conduct:
    """Under which rules it all was measured; a record goes on only under the same."""

    octavo: str
    cpu: str
    num_threads: int
    first: Mapping[str, int]
    """Peers that get only this many requests of a workload."""


@dataclass(slots=True)
class Record:
    """Grows while a comparison runs."""

    conduct: Conduct
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def attempts_of(self, row: str, peer: str) -> list[Attempt]:
        """Those of one row with one peer, in order."""
        return [a for a in self.attempts if (a.row, a.peer) == (row, peer)]

    def choice_of(self, row: str, peer: str) -> Choice | None:
        """What was chosen, if it was."""
        return next((c for c in self.choices if (c.row, c.peer) == (row, peer)), None)

    def open_pairings(self, row: Row, peer: str) -> tuple[Pairing, ...]:
        """Those of a row with a peer that can be run: none of the two has failed in it."""
        failed = {skipped.peer for skipped in self.skipped if skipped.row == row.name}
        return tuple(
            pairing
            for pairing in row.pairings_with(peer)
            if peer not in failed and pairing.ours.label not in failed
        )

    def next_is_turned(self, row: str, peer: str) -> bool:
        """Whether the peer runs first next time."""
        return is_turned(len(self.attempts_of(row, peer)))


def save(record: Record, file: Path, results: Mapping[str, Any]) -> None:
    """Write all, with the results so far beside it; a reader never sees half of it."""
    data = {"results": results, "record": record}
    half = file.with_name(f"{file.name}.part-{os.getpid()}")
    half.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1))
    half.replace(file)


def load(file: Path, conduct: Conduct) -> Record:
    """Read what was saved; what was skipped gets another chance. Raises ConfigError if it cannot be gone on from."""
    try:
        record = msgspec.json.decode(file.read_bytes(), type=_Saved).record
    except OSError as error:
        raise ConfigError(f"--resume: {file}: {error.strerror or error}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"--resume: {file} is not a saved comparison: {error}") from error
    if record.conduct != conduct:
        raise ConfigError(
            f"--resume: {file} was measured under other conditions: {_shown(record.conduct)}; "
            f"now: {_shown(conduct)}"
        )
    record.skipped.clear()
    return record


class _Saved(msgspec.Struct):
    record: Record


def _shown(conduct: Conduct) -> str:
    return (
        f"Octavo {conduct.octavo}, {conduct.cpu}, {conduct.num_threads} threads, "
        f"first requests {dict(conduct.first) or 'all'}"
    )
