from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.evaluation.comparison.peers.all import PEERS
from octavo.evaluation.comparison.peers.peer import ServingSystem
from octavo.evaluation.comparison.rows import Row, all_rows, made_up, rows_named, warm_up
from octavo.evaluation.comparison.works import Offline

WORKLOADS = Path(__file__).parents[3] / "bench" / "workloads"


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    return all_rows(WORKLOADS)


def test_every_pairing_can_be_run(rows: tuple[Row, ...]) -> None:
    for row in rows:
        for pairing in row.pairings:
            peer = PEERS[pairing.peer]()
            assert isinstance(row.work, Offline) or isinstance(peer, ServingSystem), row.name
            assert set(pairing.at_least) <= {figure.name for figure in row.work.figures}
        labels = {(pairing.ours.label, pairing.peer) for pairing in row.pairings}
        assert len(labels) == len(row.pairings), f"{row.name}: a pairing is there twice"


def test_one_label_is_one_setting(rows: tuple[Row, ...]) -> None:
    for row in rows:
        settings = {(p.ours.label, tuple(p.ours.setting.items())) for p in row.pairings}
        assert len({label for label, _ in settings}) == len(settings)


def test_warming_up_computes_nothing_of_the_run(rows: tuple[Row, ...]) -> None:
    for row in rows:
        begun = {item.prompt_token_ids[:8] for item in row.items}
        others = warm_up(row.items)
        assert others
        assert not begun & {item.prompt_token_ids[:8] for item in others}
        assert len({item.prompt_token_ids for item in others}) == len(others)


def test_made_up_requests_are_the_same_every_time() -> None:
    assert made_up(3, 5, 7) == made_up(3, 5, 7)
    assert len({item.prompt_token_ids for item in made_up(16, 8, 1)}) == 16


def test_rows_by_name(rows: tuple[Row, ...]) -> None:
    assert [row.name for row in rows_named(rows, ["prefill", "start", "prefill"])] == [
        "prefill",
        "start",
    ]
    with pytest.raises(ConfigError, match=r"--rows takes start, .*sharegpt64; given: sharegpt65"):
        rows_named(rows, ["sharegpt65"])


def test_a_missing_workload_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sharegpt64\.jsonl: No such file"):
        all_rows(tmp_path)
