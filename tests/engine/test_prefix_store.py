"""A file of pages that is right, or not used: after a kill at any moment, with any bit turned, and for another model."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from octavo.engine.prefix_store import ALIGNMENT, PrefixStore
from octavo.errors import ConfigError, TierError

PAGE = 10_000
SLOT = 12_288


def key(number: int) -> bytes:
    return blake2b(f"{number}".encode(), digest_size=32).digest()


def page(number: int) -> memoryview:
    return memoryview((key(number) * (PAGE // 32 + 1))[:PAGE])


def open_store(
    folder: Path, *, slots: int = 20, fingerprint: bytes = b"a", others: int = 0
) -> PrefixStore:
    return PrefixStore(folder, ALIGNMENT + slots * SLOT + others, PAGE, fingerprint)


def found(store: PrefixStore, numbers: range) -> list[int]:
    return [number for number in numbers if key(number) in store]


def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(10):
        store.save(key(number), page(number))
    assert store.load(key(3)) == page(3)
    store.close()
    store.close()
    again = open_store(tmp_path)
    assert found(again, range(12)) == list(range(10))
    assert [again.load(key(number)) for number in range(10)] == [page(n) for n in range(10)]
    with pytest.raises(TierError, match="not stored any more"):
        again.load(key(11))
    again.close()


def test_it_stays_in_its_bounds_and_forgets_the_longest_unused(tmp_path: Path) -> None:
    store = open_store(tmp_path, slots=5)
    for number in range(5):
        store.save(key(number), page(number))
    store.load(key(0))
    for number in range(5, 8):
        store.save(key(number), page(number))
    assert found(store, range(8)) == [0, 4, 5, 6, 7]
    assert store.load(key(7)) == page(7)
    assert store.path.stat().st_size <= ALIGNMENT + 5 * SLOT
    store.close()
    smaller = open_store(tmp_path, slots=3)
    assert len(smaller) == 3
    assert smaller.path.stat().st_size <= ALIGNMENT + 3 * SLOT
    smaller.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "new" / "folder")
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700
    store.close()


def test_another_fingerprint_sees_nothing_and_all_together_stay_in_bounds(tmp_path: Path) -> None:
    for name in (b"a", b"b", b"c"):
        store = open_store(tmp_path, slots=8, fingerprint=name)
        assert len(store) == 0
        for number in range(8):
            store.save(key(number), page(number))
        store.close()
        total = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert total <= ALIGNMENT + 8 * SLOT
        time.sleep(0.01)  # so that their times differ


def test_a_file_is_used_by_one_process(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(ConfigError, match="in use by another process"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize(
    ("slots", "text"), [(0, f"at least one page of {SLOT} bytes"), (-5, "at least one page")]
)
def test_a_size_that_holds_nothing_is_refused(tmp_path: Path, slots: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_store(tmp_path, slots=slots)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"kv_cache_dir .*file cannot be used"):
        open_store(tmp_path / "file")


def test_no_turned_bit_is_trusted(tmp_path: Path) -> None:
    """Anywhere in the file: the page is right, or it is not there."""
    store = open_store(tmp_path)
    for number in range(3):
        store.save(key(number), page(number))
    store.close()
    whole = store.path.read_bytes()
    rng = random.Random(4)
    places = [*range(60), *range(ALIGNMENT, ALIGNMENT + 100)]
    for place in places + [rng.randrange(len(whole)) for _ in range(150)]:
        data = bytearray(whole)
        data[place] ^= 1 << rng.randrange(8)
        store.path.write_bytes(data)
        hurt = open_store(tmp_path)
        for number in range(3):
            if key(number) in hurt:
                try:
                    assert hurt.load(key(number)) == page(number)
                except TierError as error:
                    assert "damaged" in str(error)
                    assert key(number) not in hurt
        hurt.save(key(9), page(9))
        assert hurt.load(key(9)) == page(9)
        hurt.close()


def test_a_page_of_one_key_is_not_taken_for_another(tmp_path: Path) -> None:
    """Slots that have changed places, and pages under the header of another."""
    store = open_store(tmp_path)
    store.save(key(0), page(0))
    store.save(key(1), page(1))
    store.close()
    data = bytearray(store.path.read_bytes())
    first, second = ALIGNMENT + 72, ALIGNMENT + SLOT + 72
    data[first : first + PAGE], data[second : second + PAGE] = (
        data[second : second + PAGE],
        data[first : first + PAGE],
    )
    store.path.write_bytes(data)
    mixed = open_store(tmp_path)
    for number in (0, 1):
        with pytest.raises(TierError, match="damaged"):
            mixed.load(key(number))
    mixed.close()


def test_a_full_disk_is_named_and_what_is_there_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.save(key(0), page(0))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        with pytest.raises(TierError, match=r"could not be stored in .*No space left"):
            store.save(key(1), page(1))
    store.save(key(2), page(2))
    assert found(store, range(3)) == [2]
    assert store.load(key(2)) == page(2)
    store.close()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from engine.test_prefix_store import key, open_store, page
store = open_store(Path({folder!r}), slots=6)
print("open", flush=True)
number = {start}
while True:
    store.save(key(number), page(number))
    number += 1
"""


def kill_a_writer(folder: Path, start: int, seconds: float) -> None:
    code = WRITER.format(tests=str(Path(__file__).parents[1]), folder=str(folder), start=start)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)
        writer.wait()


def kill_often(folder: Path, times: int) -> None:
    rng = random.Random(7)
    num_right = 0
    for round_ in range(times):
        kill_a_writer(folder, round_ * 1_000_000, rng.uniform(0, 0.02))
        store = open_store(folder, slots=6)
        assert store.path.stat().st_size <= ALIGNMENT + 6 * SLOT
        for name in list(store._slots):
            try:
                content = store.load(name)
            except TierError:
                continue
            assert bytes(content[:32]) == name
            assert content == memoryview((name * (PAGE // 32 + 1))[:PAGE])
            num_right += 1
        store.close()
    assert num_right >= times  # a kill costs the page that was being written


def test_a_kill_at_any_moment_leaves_what_is_right(tmp_path: Path) -> None:
    kill_often(tmp_path, 5)


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_what_is_right_long(tmp_path: Path) -> None:
    kill_often(tmp_path, 200)
