"""Which blocks hold which beginnings of sequences.

A full block is known by a key that stands for all tokens up to its end: a chain of hashes (BLAKE2b, keyed by
the key of the block before). Equal keys mean equal tokens, computed by the same model for the same tenant,
so equal keys and values.
"""

from array import array
from dataclasses import dataclass
from hashlib import blake2b

from octavo.core.step import BlockId

Key = bytes
KEY_SIZE = 32
"""Bytes. Long enough that nobody finds two beginnings with one key, not even on purpose."""


class PrefixChain:
    """The keys of one sequence's full blocks, each computed once.

    Its tokens are handed in with every call, since a sequence's own array may be replaced as it grows; those
    that were there stay.
    """

    __slots__ = ("_block_size", "_keys", "_root", "num_published")

    def __init__(self, root: Key, block_size: int) -> None:
        self._root = root
        self._block_size = block_size
        self._keys: list[Key] = []
        self.num_published = 0
        """Blocks from the first on that others can find."""

    def key(self, number: int, token_ids: "array[int]") -> Key:
        """The key of block `number`, whose tokens are all known."""
        keys, size = self._keys, self._block_size
        while len(keys) <= number:
            start = len(keys) * size
            tokens = token_ids[start : start + size]
            assert len(tokens) == size, f"block {len(keys)} is not full"
            parent = keys[-1] if keys else self._root
            keys.append(blake2b(tokens, key=parent, digest_size=KEY_SIZE).digest())
        return keys[number]

    def parent(self, number: int, token_ids: "array[int]") -> Key:
        """The key of the block before block `number`; the root for the first."""
        return self.key(number - 1, token_ids) if number else self._root

    def fork(self) -> "PrefixChain":
        """The chain of a sequence that begins as this one."""
        child = PrefixChain(self._root, self._block_size)
        child._keys = self._keys[:]
        child.num_published = self.num_published
        return child


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the cache knows of a block."""

    parent: Key
    token_ids: "array[int]"
    """In the block, from its first slot on; fewer than B: the end of a sequence that has left."""
    key: Key | None
    """None unless the block is full."""

    @property
    def place(self) -> bytes:
        """What leads to this block when only some of its tokens are wanted."""
        return _place(self.parent, self.token_ids[0])


class PrefixCache:
    """An index of blocks by what they hold. It owns no block; `BlockTables` says what comes and goes.

    One block is known for each key, and one for each parent and first token: the latest that serves those
    who want only some of its tokens. A lookup is a few dictionary hits, however much is cached.
    """

    def __init__(self, fingerprint: bytes) -> None:
        """`fingerprint` stands for everything that keys and values depend on besides tokens."""
        self._fingerprint = blake2b(fingerprint, digest_size=KEY_SIZE).digest()
        self._blocks: dict[Key, BlockId] = {}
        self._entries: dict[BlockId, _Entry] = {}
        self._places: dict[bytes, BlockId] = {}

    def root(self, *names: str) -> Key:
        """Where chains begin that share blocks only with those of the same names (tenant, adapter)."""
        hashed = blake2b(key=self._fingerprint, digest_size=KEY_SIZE)
        for name in names:
            data = name.encode("utf-8", "surrogatepass")
            hashed.update(len(data).to_bytes(8, "little") + data)
        return hashed.digest()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Key) -> BlockId | None:
        """The block with this key."""
        return self._blocks.get(key)

    def find_tail(self, parent: Key, token_ids: "array[int]") -> tuple[BlockId, int] | None:
        """A block after `parent` that begins with some of these tokens (at least one), and with how many."""
        if not token_ids:
            return None
        block = self._places.get(_place(parent, token_ids[0]))
        if block is None:
            return None
        return block, _num_equal(self._entries[block].token_ids, token_ids)

    def add(
        self, parent: Key, token_ids: "array[int]", block: BlockId, key: Key | None
    ) -> BlockId | None:
        """Enter a block that is not in here, under its key if it is full.

        Returns a block that the new one makes useless and that has been taken out.
        """
        assert block not in self._entries, f"block {block} is in the cache"
        entry = _Entry(parent, token_ids, key)
        useless = self._places.get(entry.place)
        if useless is not None and self._entries[useless].key is None:
            self.remove(useless)
        else:
            useless = None
        self._entries[block] = entry
        self._places[entry.place] = block
        if key is not None:
            self._blocks[key] = block
        return useless

    def remove(self, block: BlockId) -> None:
        """Forget a block that is in here."""
        entry = self._entries.pop(block)
        if entry.key is not None:
            del self._blocks[entry.key]
        if self._places.get(entry.place) == block:
            del self._places[entry.place]

    def check_integrity(self) -> set[BlockId]:
        """The blocks that are in here. Raises AssertionError unless all ways lead to them. O(cached)."""
        by_key = {entry.key: block for block, entry in self._entries.items() if entry.key}
        assert by_key == self._blocks, "keys and entries differ"
        for place, block in self._places.items():
            assert self._entries[block].place == place, f"block {block} is found where it is not"
        for block, entry in self._entries.items():
            assert entry.key or self._places[entry.place] == block, f"block {block} cannot be found"
        return set(self._entries)


def _place(parent: Key, first_token_id: int) -> bytes:
    return parent + first_token_id.to_bytes(4, "little")


def _num_equal(a: "array[int]", b: "array[int]") -> int:
    """How many leading elements are equal."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
