"""The comparison itself: rows, peers and pairs, one leg after another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from octavo.evaluation.comparison.pairs import wants_more
from octavo.evaluation.comparison.peers.octavo import OctavoSystem
from octavo.evaluation.comparison.peers.peer import (
    Job,
    ModelFiles,
    Peer,
    PeerError,
    Setting,
    System,
    shown,
)
from octavo.evaluation.comparison.probes import Watch
from octavo.evaluation.comparison.record import Attempt, Choice, Leg, Record, Skipped
from octavo.evaluation.comparison.results import num_kept
from octavo.evaluation.comparison.rows import Row, warm_up
from octavo.progress import Progress


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that a run needs."""

    rows: Sequence[Row]
    peers: Sequence[Peer]
    models: Mapping[str, ModelFiles]
    num_pairs: int | None
    """Instead of what each peer says."""
    watch: Callable[[], Watch]
    save: Callable[[Record], None]
    """Called after each step that need not be repeated."""

    def run(self, record: Record, progress: Progress) -> None:
        """Measure what the record does not hold yet. What fails goes into it with its reason, and the rest goes on."""
        for peer in self._set_up(record, progress):
            for row in self.rows:
                if not row.pairings_with(peer.name):
                    continue
                try:
                    self._run_row(record, row, peer, progress)
                except PeerError as error:
                    record.skipped.append(Skipped(row.name, peer.name, str(error)))
                self.save(record)

    def _set_up(self, record: Record, progress: Progress) -> list[Peer]:
        """The peers that are here."""
        found = []
        for peer in self.peers:
            progress(f"setting up {peer.name}", 0.0)
            try:
                record.versions[peer.name] = dict(peer.set_up(progress))
                found.append(peer)
            except PeerError as error:
                record.skipped.append(Skipped("", peer.name, str(error)))
            progress(f"setting up {peer.name}", 1.0)
        return found

    def _run_row(self, record: Record, row: Row, peer: Peer, progress: Progress) -> None:
        wanted = self.num_pairs or peer.num_pairs
        setting = self._choose(record, row, peer, progress)
        stage = f"{row.name}: {peer.name}"
        while pairings := record.open_pairings(row, peer.name):
            attempts = record.attempts_of(row.name, peer.name)
            kept = min(num_kept(row, pairing, attempts) for pairing in pairings)
            progress(stage, min(1.0, kept / wanted))
            if not wants_more(kept, len(attempts), wanted):
                return
            record.attempts.append(self._attempt(record, row, peer, setting, progress))
            self.save(record)

    def _attempt(
        self, record: Record, row: Row, peer: Peer, setting: Setting, progress: Progress
    ) -> Attempt:
        """One leg of each, the peer last or first."""
        octavo = OctavoSystem()
        order: list[tuple[System, str, Setting]] = [
            (octavo, pairing.ours.label, pairing.ours.setting)
            for pairing in record.open_pairings(row, peer.name)
        ]
        order.append((peer, peer.name, setting))
        if record.next_is_turned(row.name, peer.name):
            order.reverse()
        number = len(record.attempts_of(row.name, peer.name))
        done = []
        for who, label, with_setting in order:
            progress(f"{row.name}: pair {number + 1} with {peer.name}: {label}", 0.0)
            try:
                done.append(self._leg(record, row, who, label, with_setting))
            except PeerError as error:
                if who is peer:
                    raise
                record.skipped.append(Skipped(row.name, label, str(error)))  # the other ones go on
            progress(f"{row.name}: pair {number + 1} with {peer.name}: {label}", 1.0)
        return Attempt(row.name, peer.name, number, tuple(done))

    def _leg(self, record: Record, row: Row, who: System, label: str, setting: Setting) -> Leg:
        job = self._job(record, row, record.conduct.first.get(who.name))
        watch = self.watch()
        run = row.work.measure(who, job, setting)
        run.check()
        return Leg(label, setting, run, watch.end(), len(job.items))

    def _choose(self, record: Record, row: Row, peer: Peer, progress: Progress) -> Setting:
        """The best of the peer's settings for this row: each is tried once, if there is more than one.

        One that fails is not chosen; raises PeerError if all do.
        """
        made = record.choice_of(row.name, peer.name)
        if made is not None:
            return made.chosen
        first = record.conduct.first.get(peer.name)
        settings = peer.settings(self._job(record, row, first))
        job = self._job(record, row, min(filter(None, (first, peer.first)), default=None))
        figure = row.work.figures[0]
        tried, failed = [], []
        for setting in settings if len(settings) > 1 else ():
            stage = f"{row.name}: trying {peer.name} with {shown(setting)}"
            progress(stage, 0.0)
            try:
                run = row.work.measure(peer, job, setting)
                tried.append((setting, run.figures[figure.name]))
            except PeerError as error:
                failed.append(error)
            progress(stage, 1.0)
        if failed and not tried:
            raise failed[0]
        sign = 1 if figure.more_is_better else -1
        best = max(tried, key=lambda one: sign * one[1])[0] if tried else settings[0]
        record.choices.append(Choice(row.name, peer.name, tuple(tried), best))
        self.save(record)
        return best

    def _job(self, record: Record, row: Row, first: int | None) -> Job:
        model = self.models[row.model]
        return Job(model, row.items[:first], warm_up(row.items), record.conduct.num_threads)
