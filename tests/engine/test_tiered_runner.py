"""The scheduler over a runner with real files, whose disk fails now and then: answers are those of an unbounded pool."""

import os
import random
from array import array
from pathlib import Path
from typing import Any

import pytest

from octavo.core.costs import RestoreCosts
from octavo.core.step import BlockId
from octavo.engine.prefix_store import PrefixStore
from octavo.engine.swap_file import SwapFile
from octavo.engine.tiered_runner import TieredRunner
from support.fake_runner import FakeRunner
from support.scheduling import Rig, make_request

BLOCK_SIZE = 4
NUM_BLOCKS = 12


class PagedFake(FakeRunner):
    """A fake runner that leaves moving pages to others."""

    page_bytes = 4 * BLOCK_SIZE

    def read_page(self, block: BlockId) -> memoryview:
        return memoryview(self._pages[block].tobytes())

    def write_page(self, block: BlockId, page: memoryview) -> None:
        self._pages[block] = array("i", bytes(page))

    def _send_away(self, plan: Any) -> None:
        pass

    def _bring_back(self, plan: Any) -> frozenset[BlockId]:
        return frozenset()


class TieredRig(Rig):
    """A rig whose pages go to files."""

    def __init__(self, folder: Path) -> None:
        fake, costs = (
            PagedFake(NUM_BLOCKS, BLOCK_SIZE),
            RestoreCosts(token=1.0, page_out=1e-3, page_in=1e-3),
        )
        store = PrefixStore(folder, 1 << 20, fake.page_bytes, b"fake")
        swap = SwapFile(30 * fake.page_bytes, fake.page_bytes, folder)
        super().__init__(
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            costs=costs,
            num_swap_slots=swap.num_slots,
            stored=store,
            runner=TieredRunner(fake, fake, costs, swap=swap, store=store),
        )


def play(folder: Path, seed: int) -> Rig:
    rig = TieredRig(folder)
    rng = random.Random(seed)
    requests = [
        make_request(
            f"{number}",
            prompt=[(7 * i + rng.randrange(3)) % 50 for i in range(rng.randrange(1, 20))],
            max_tokens=rng.randrange(1, 25),
            n=rng.choice([1, 1, 2]),
            ignore_eos=True,
        )
        for number in range(12)
    ]
    for request in requests:
        rig.scheduler.add(request)
    rig.run()
    for request in requests:
        rig.check_answer(request)
    while (saves := rig.scheduler.saves()) is not None:
        rig.runner.run(saves)
    rig.runner.close()
    return rig


def test_pages_go_and_come(tmp_path: Path) -> None:
    first = play(tmp_path, 1).scheduler.usage()
    assert first.num_swaps > 0
    assert first.num_blocks_swapped_in > 0
    assert first.num_blocks_stored > 0
    assert first.num_blocks_failed == 0
    again = play(tmp_path, 1).scheduler.usage()
    assert again.num_blocks_loaded > 0


@pytest.mark.parametrize("call", ["pwrite", "pwritev", "pread"])
def test_a_disk_that_fails_costs_time_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    play(tmp_path, 2)
    real = getattr(os, call)
    rng = random.Random(3)
    is_open = False

    def unreliable(*arguments: Any) -> Any:
        if is_open and rng.random() < 0.4:
            raise OSError(5, "Input/output error")
        return real(*arguments)

    monkeypatch.setattr(os, call, unreliable)
    monkeypatch.setattr(TieredRig, "run", lambda rig: fail_from_here(rig))

    def fail_from_here(rig: Rig) -> None:
        nonlocal is_open
        is_open = True
        Rig.run(rig)

    usage = play(tmp_path, 2).scheduler.usage()
    if call != "pwritev":
        assert usage.num_blocks_failed > 0
