"""Pages in a file without a name, and the faults of a disk."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from octavo.core.costs import RestoreCosts
from octavo.engine.swap_file import SwapFile
from octavo.errors import ConfigError, TierError

PAGE = 4096


def page(number: int) -> memoryview:
    return memoryview(bytes([number]) * PAGE)


def test_pages_come_back_and_no_file_is_seen(tmp_path: Path) -> None:
    swap = SwapFile(10 * PAGE + 100, PAGE, tmp_path)
    assert swap.num_slots == 10
    assert list(tmp_path.iterdir()) == []
    for slot in range(10):
        swap.write(slot, page(slot))
    swap.write(3, page(77))
    assert [swap.read(slot)[0] for slot in range(10)] == [0, 1, 2, 77, 4, 5, 6, 7, 8, 9]
    swap.close()
    swap.close()


def test_its_space_is_taken_at_once(tmp_path: Path) -> None:
    before = os.statvfs(tmp_path)
    swap = SwapFile(1 << 24, PAGE, tmp_path)
    after = os.statvfs(tmp_path)
    assert (before.f_bfree - after.f_bfree) * after.f_frsize >= 1 << 23  # others use this disk too
    swap.close()


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (PAGE - 1, f"at least one page of {PAGE} bytes; given: {PAGE - 1}"),
        (
            1 << 60,
            f"swap_space takes {1 << 60} bytes in .*, which it cannot have: .* bytes are free",
        ),
    ],
)
def test_space_that_is_not_there_is_refused_with_numbers(
    tmp_path: Path, num_bytes: int, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        SwapFile(num_bytes, PAGE, tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.*No such file"):
        SwapFile(PAGE, PAGE, tmp_path / "nowhere")


def test_faults_are_named_and_what_was_not_written_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = SwapFile(4 * PAGE, PAGE, tmp_path)
    swap.write(0, page(1))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(TierError, match="swapped out: No space left"):
            swap.write(0, page(2))
    with pytest.raises(TierError, match="never swapped out"):
        swap.read(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: PAGE // 2)
        with pytest.raises(TierError, match=f"in part: {PAGE // 2} of {PAGE}"):
            swap.write(1, page(2))
    swap.write(0, page(3))
    assert swap.read(0)[0] == 3
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", full)
        with pytest.raises(TierError, match="swapped in"):
            swap.read(0)
    swap.close()


def test_costs_are_measured(tmp_path: Path) -> None:
    costs = RestoreCosts()
    assert costs.swapping(1, 1) is None
    swap = SwapFile(1 << 20, 1 << 18, tmp_path)
    swap.probe(costs)
    seconds = costs.swapping(1, 1)
    assert seconds is not None
    assert 0 < seconds < 1
    swap.close()
