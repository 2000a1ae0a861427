from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ConfigError
from octavo.evaluation.comparison import run as run_module
from octavo.evaluation.comparison.peers.peer import (
    OUTPUT_RATE,
    Job,
    ModelFiles,
    PeerError,
    Run,
    Setting,
)
from octavo.evaluation.comparison.probes import Conditions
from octavo.evaluation.comparison.record import Conduct, Record, load, save
from octavo.evaluation.comparison.results import report, results_of
from octavo.evaluation.comparison.rows import Ours, Pairing, Row, made_up
from octavo.evaluation.comparison.run import Comparison
from octavo.evaluation.comparison.works import Offline, Serving
from octavo.progress import silent
from support.scripted_peers import OFF, QUIET, STOLEN, ScriptedPeer, ScriptedWatch

CONDUCT = Conduct("1.2", "a processor", 2, {})
FAST, SLOW = Ours("fast", {"rate": "300"}), Ours("slow", {"rate": "200"})
ROW = Row("row", "A row", "tiny", Offline(), made_up(8, 4, 3),
          (Pairing(FAST, "peer", {OUTPUT_RATE: 2.5}), Pairing(SLOW, "peer")))  # fmt: skip
MODELS = {"tiny": ModelFiles(Path("tiny.gguf"), None)}


class ScriptedOctavo:
    """Octavo at the rate that its setting says; 0 fails."""

    name = "octavo"
    state = OFF

    def run(self, job: Job, setting: Setting) -> Run:
        rate = float(setting["rate"])
        if rate == 0:
            raise PeerError("no such flag")
        return Run({OUTPUT_RATE: rate}, self.state, {})


@pytest.fixture(autouse=True)
def scripted_octavo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "OctavoSystem", ScriptedOctavo)


def compare(
    peers: Sequence[ScriptedPeer],
    record: Record | None = None,
    *,
    rows: Sequence[Row] = (ROW,),
    conditions: Iterator[Conditions] = iter(()),  # noqa: B008  # never changed when empty
    saved: list[Any] | None = None,
) -> Record:
    record = Record(CONDUCT) if record is None else record
    keep = (lambda r: None) if saved is None else (lambda r: saved.append(report(rows, r)))
    watch: Any = lambda: ScriptedWatch(conditions)  # noqa: E731
    Comparison(rows, peers, MODELS, None, watch, keep).run(record, silent)
    return record


def order(record: Record) -> list[list[str]]:
    return [[leg.system for leg in attempt.legs] for attempt in record.attempts]


def test_pairs_alternate() -> None:
    record = compare([ScriptedPeer("peer", {"only": 100.0}, num_pairs=4)])
    once = ["fast", "slow", "peer"]
    assert order(record) == [once, once[::-1], once, once[::-1]]
    fast, slow = results_of([ROW], record)
    assert (fast.verdict.ratios, fast.is_reached, fast.our_value, fast.peer_value) == (
        (3.0,) * 4,
        True,
        300.0,
        100.0,
    )
    assert (slow.verdict.median, slow.is_reached) == (2.0, None)


def test_a_dropped_pair_is_run_again_and_told() -> None:
    # The second leg of the first pair is stolen: `slow` does not count there, `fast` does.
    record = compare(
        [ScriptedPeer("peer", {"only": 100.0})], conditions=iter([QUIET, STOLEN, QUIET])
    )
    fast, slow = results_of([ROW], record)
    assert len(record.attempts) == 3
    assert (len(fast.verdict.ratios), fast.verdict.dropped) == (3, ())
    assert len(slow.verdict.ratios) == 2
    assert slow.verdict.dropped == ("50.0% of the CPU time was stolen",)


def test_a_machine_that_is_never_quiet_ends_it() -> None:
    record = compare([ScriptedPeer("peer", {"only": 100.0})], conditions=repeat(STOLEN))
    fast, _ = results_of([ROW], record)
    assert len(record.attempts) == 4
    assert (fast.verdict.median, fast.is_reached, len(fast.verdict.dropped)) == (None, None, 4)


def test_the_best_setting_is_compared() -> None:
    peer = ScriptedPeer("peer", {"bad": 50.0, "good": 90.0, "worse": 40.0}, first=5)
    record = compare([peer])
    assert peer.ran == [("bad", 5), ("good", 5), ("worse", 5), ("good", 8), ("good", 8)]
    choice = record.choice_of("row", "peer")
    assert choice is not None
    assert [value for _, value in choice.tried] == [50.0, 90.0, 40.0]
    assert results_of([ROW], record)[0].note == "option good"


def test_a_setting_that_fails_is_not_chosen() -> None:
    record = compare([ScriptedPeer("peer", {"broken": 0.0, "good": 100.0})])
    assert results_of([ROW], record)[0].note == "option good"
    assert record.skipped == []
    record = compare([ScriptedPeer("peer", {"broken": 0.0, "bad": 0.0})])
    assert [skipped.reason for skipped in record.skipped] == ["peer fell over"]


def test_a_slow_peer_may_get_the_first_requests_and_it_is_said() -> None:
    peer = ScriptedPeer("peer", {"only": 100.0})
    record = compare([peer], Record(replace(CONDUCT, first={"peer": 2})))
    assert peer.ran == [("only", 2)] * 2
    assert (
        results_of([ROW], record)[0].note
        == "option only, the peer ran only the first 2 of 8 requests"
    )


def test_what_is_absent_or_fails_is_skipped_with_its_reason() -> None:
    away = ScriptedPeer("away", {"only": 1.0}, problem="no wheel for this Python")
    falls = ScriptedPeer("peer", {"only": 0.0})
    rows = [replace(ROW, pairings=(*ROW.pairings, Pairing(FAST, "away")))]
    record = compare([away, falls], rows=rows)
    assert [(s.row, s.peer, s.reason) for s in record.skipped] == [
        ("", "away", "no wheel for this Python"),
        ("row", "peer", "peer fell over"),
    ]
    assert record.attempts == [] and results_of(rows, record) == []


def test_one_of_ours_that_fails_does_not_hold_up_the_others() -> None:
    broken = Pairing(Ours("broken", {"rate": "0"}), "peer")
    rows = [replace(ROW, pairings=(broken, *ROW.pairings))]
    record = compare([ScriptedPeer("peer", {"only": 100.0})], rows=rows)
    assert [(s.peer, s.reason) for s in record.skipped] == [("broken", "no such flag")]
    found = {result.ours: result.verdict.median for result in results_of(rows, record)}
    assert found == {"broken": None, "fast": 3.0, "slow": 2.0}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"speculation": "on", "prefix_cache": "off"}, "not comparable: speculation is on"),
        ({"speculation": "off"}, "not comparable: prefix_cache is unknown, not empty or off"),
    ],
)
def test_another_state_is_not_compared(state: dict[str, str], reason: str) -> None:
    record = compare([ScriptedPeer("peer", {"only": 100.0}, state=state)])
    assert record.attempts == []
    assert record.skipped[0].reason.startswith(reason)


def test_a_peer_without_a_server_says_so() -> None:
    record = compare(
        [ScriptedPeer("peer", {"only": 1.0})], rows=[replace(ROW, work=Serving(), pairings=(Pairing(FAST, "peer"),))]
    )  # fmt: skip
    # Ours has none here either, and comes first.
    assert {s.reason for s in record.skipped} <= {"octavo has no server", "peer has no server"}
    assert record.skipped


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    class Interrupted(ScriptedPeer):
        def run(self, job: Job, setting: Setting) -> Run:
            if len(self.ran) == 4:  # after two tries and two pairs
                raise KeyboardInterrupt
            return super().run(job, setting)

    file = tmp_path / "comparison.json"
    rates = {"bad": 50.0, "good": 100.0}
    record = Record(CONDUCT)
    comparison = Comparison(
        [ROW], [Interrupted("peer", rates, num_pairs=3)], MODELS, None,
        lambda: ScriptedWatch(iter(())), lambda r: save(r, file, report([ROW], r)),  # type: ignore[arg-type,return-value]
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        comparison.run(record, silent)
    again = load(file, CONDUCT)
    assert len(again.attempts) == 2
    peer = ScriptedPeer("peer", rates, num_pairs=3)
    compare([peer], again)
    assert peer.ran == [("good", 8)], "what was measured is not measured again"
    assert order(again) == [
        ["fast", "slow", "peer"],
        ["peer", "slow", "fast"],
        ["fast", "slow", "peer"],
    ]
    assert results_of([ROW], again)[0].verdict.ratios == (3.0,) * 3
    assert list(tmp_path.iterdir()) == [file], "no half-written file is left"


def test_skipped_ones_get_another_chance(tmp_path: Path) -> None:
    file = tmp_path / "comparison.json"
    record = compare([ScriptedPeer("peer", {"only": 0.0})])
    save(record, file, report([ROW], record))
    again = compare([ScriptedPeer("peer", {"only": 100.0})], load(file, CONDUCT))
    assert again.skipped == [] and len(again.attempts) == 2


def test_only_a_record_of_the_same_machine_and_version_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "comparison.json"
    save(Record(CONDUCT), file, {})
    with pytest.raises(
        ConfigError,
        match=r"under other conditions: Octavo 1\.2, a processor, 2 threads.*now: Octavo 1\.3",
    ):
        load(file, replace(CONDUCT, octavo="1.3"))
    file.write_text("{}")
    with pytest.raises(ConfigError, match="is not a saved comparison"):
        load(file, CONDUCT)
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none", CONDUCT)
