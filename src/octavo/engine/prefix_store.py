"""Pages of the prefix cache in a file that outlives the process.

The file is a header and slots of one size; a slot is a header and a page. There is no index: it is made anew from the headers
when the file is opened, so that it cannot disagree with them. A slot is written with one call, and its header holds a checksum
of itself and one of the page, both keyed by the fingerprint of all that keys and values depend on. A write that was cut short
at any byte, or a bit that has turned, is found out when the slot is looked at, and then the slot is free.
"""

import errno
import fcntl
import logging
import os
import struct
from hashlib import blake2b
from pathlib import Path

from octavo.core.prefix_cache import KEY_SIZE, Key
from octavo.errors import ConfigError, TierError

logger = logging.getLogger(__name__)

SUFFIX = ".octavo-kv"
MAGIC = b"octavkv1"
DIGEST_SIZE = 16
ALIGNMENT = 4096
_HEAD = struct.Struct(f"<8sQQ{DIGEST_SIZE}s")
"""Magic, bytes of a page, bytes of a slot, checksum of these."""
_SLOT = struct.Struct(f"<{KEY_SIZE}sQ{DIGEST_SIZE}s{DIGEST_SIZE}s")
"""Key, age, checksum of the page, checksum of these."""


class PrefixStore:
    """Pages by key, the least recently used of which give way to new ones.

    One thread writes and reads; another may ask at any time whether a key is in here.
    """

    def __init__(
        self, directory: Path, num_bytes: int, page_bytes: int, fingerprint: bytes
    ) -> None:
        """Open or begin the file for this fingerprint; all such files in the folder stay below `num_bytes` together.

        Raises ConfigError if the folder cannot be used, another process uses the file, or not one page fits.
        """
        self._seal = blake2b(fingerprint, digest_size=KEY_SIZE).digest()
        self._page_bytes = page_bytes
        self._slot_bytes = -(-(_SLOT.size + page_bytes) // ALIGNMENT) * ALIGNMENT
        self.path = directory / f"{self._seal[:16].hex()}{SUFFIX}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"kv_cache_dir {directory} cannot be used: {error.strerror}"
            ) from error
        try:
            self._lock()
            others = remove_oldest(directory, num_bytes // 2, spared=self.path)
            self._num_slots = (num_bytes - others - ALIGNMENT) // self._slot_bytes
            if self._num_slots < 1:
                raise ConfigError(
                    f"kv_cache_dir_size must hold at least one page of {self._slot_bytes} bytes beside "
                    f"{others + ALIGNMENT} bytes; given: {num_bytes}"
                )
            self._slots: dict[Key, int] = {}
            """In the order of their last use."""
            self._age = 0
            self._free: list[int] = []
            self._num_opened = 0
            self._open()
        except OSError as error:
            os.close(self._fd)
            raise ConfigError(f"{self.path} cannot be used: {error.strerror}") from error
        except ConfigError:
            os.close(self._fd)
            raise

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_slots(self) -> int:
        """Most pages that it holds."""
        return self._num_slots

    def save(self, key: Key, page: memoryview) -> None:
        """Keep a page, if it is not in here. Raises TierError; then it is not."""
        if key in self._slots:
            return
        slot = self._slot_for_new()
        if slot is None:
            return
        self._age += 1
        head = self._sealed(_SLOT, key, self._age, self._digest(page, key))
        try:
            written = os.pwritev(self._fd, (head, page), self._offset(slot))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._num_slots = self._num_opened  # from now on what is there gives way
            else:
                self._free.append(slot)
            raise TierError(
                f"a page could not be stored in {self.path}: {error.strerror}"
            ) from error
        if written != len(head) + self._page_bytes:
            self._free.append(slot)
            raise TierError(f"a page was stored in part in {self.path}: {written} bytes")
        self._slots[key] = slot

    def load(self, key: Key) -> memoryview:
        """The page with this key. Raises TierError if there is none or it is damaged; then it is forgotten."""
        slot = self._slots.pop(key, None)
        if slot is None:
            raise TierError("a prefix is not stored any more")
        size = _SLOT.size + self._page_bytes
        try:
            data = os.pread(self._fd, size, self._offset(slot))
        except OSError as error:
            self._free.append(slot)
            raise TierError(f"a page of {self.path} cannot be read: {error.strerror}") from error
        page = memoryview(data)[_SLOT.size :]
        known = self._read_slot_header(data)
        if known is None or known[0] != key or known[2] != self._digest(page, key):
            self._free.append(slot)
            raise TierError(f"a page of {self.path} is damaged: slot {slot}")
        self._slots[key] = slot  # the last used
        return page

    def close(self) -> None:
        """Let another process have the file. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{self.path} is in use by another process: give each a kv_cache_dir of its own"
            ) from error

    def _open(self) -> None:
        head = self._sealed(_HEAD, MAGIC, self._page_bytes, self._slot_bytes)
        if os.pread(self._fd, len(head), 0) != head:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, head, 0)
        size = os.fstat(self._fd).st_size
        most = ALIGNMENT + self._num_slots * self._slot_bytes
        if size > most:  # a smaller limit than the last time
            os.ftruncate(self._fd, most)
            size = most
        self._num_opened = max(0, -(-(size - ALIGNMENT) // self._slot_bytes))
        newest: dict[Key, tuple[int, int]] = {}
        for slot in range(self._num_opened):
            known = self._read_slot_header(os.pread(self._fd, _SLOT.size, self._offset(slot)))
            if known is not None:
                key, age, _ = known
                newest[key] = max(newest.get(key, (0, 0)), (age, slot))
        for key, (age, slot) in sorted(newest.items(), key=lambda item: item[1]):
            self._slots[key] = slot
            self._age = age
        os.utime(self._fd)  # by which the longest unused file is known
        used = set(self._slots.values())
        self._free = [slot for slot in reversed(range(self._num_opened)) if slot not in used]
        logger.info("%s: %d pages, at most %d", self.path, len(self._slots), self._num_slots)

    def _slot_for_new(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._num_opened < self._num_slots:
            self._num_opened += 1
            return self._num_opened - 1
        if not self._slots:
            return None
        return self._slots.pop(next(iter(self._slots)))

    def _offset(self, slot: int) -> int:
        return ALIGNMENT + slot * self._slot_bytes

    def _sealed(self, form: struct.Struct, *values: bytes | int) -> bytes:
        """These values and their checksum."""
        unsealed = form.pack(*values, bytes(DIGEST_SIZE))[:-DIGEST_SIZE]
        return unsealed + self._digest(unsealed, b"")

    def _read_slot_header(self, data: bytes) -> tuple[Key, int, bytes] | None:
        """Key, age and checksum of the page; None unless they are what was written."""
        if len(data) < _SLOT.size:
            return None
        key, age, digest, _ = _SLOT.unpack_from(data)
        return (
            (key, age, digest)
            if self._sealed(_SLOT, key, age, digest) == data[: _SLOT.size]
            else None
        )

    def _digest(self, data: bytes | memoryview, key: Key) -> bytes:
        hashed = blake2b(key, key=self._seal, digest_size=DIGEST_SIZE)
        hashed.update(data)
        return hashed.digest()


def remove_oldest(directory: Path, num_bytes: int, *, spared: Path) -> int:
    """Remove files of other fingerprints, the longest unused first, until they have at most `num_bytes`. Returns what they have.

    Files that a process uses stay.
    """
    files = [(path.stat(), path) for path in directory.glob(f"*{SUFFIX}") if path != spared]
    total = sum(stat.st_size for stat, _ in files)
    for stat, path in sorted(files, key=lambda file: file[0].st_mtime):
        if total <= num_bytes:
            break
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            logger.info("removing %s: %d bytes", path, stat.st_size)
            path.unlink()
        total -= stat.st_size
    return total
