"""Beginnings of prompts that somebody has given a name: their pages stay, whatever is evicted."""

from array import array
from dataclasses import dataclass

from octavo.core.block_tables import BlockTables
from octavo.core.step import SeqId
from octavo.errors import CapacityError, InvalidParameterError, UnsupportedParameterError

MOST_NAMES = 1024
"""Several names may stand for the same pages: their share of the pool does not bound how many there are."""


@dataclass(frozen=True, slots=True)
class PrefixKey:
    """What names a prefix. Tenants with different salts may use the same name, and do not see each other's."""

    name: str
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class NamedPrefix:
    """A prefix, and what it holds."""

    key: PrefixKey
    num_tokens: int
    """Of the prompt; those in its last, partly filled block are not held."""
    num_blocks: int
    expires_at: float | None
    """On the clock of who pins. None: it stays until it is given up."""
    seq_id: SeqId
    """Of the table that holds its blocks. Below 0: no sequence has it."""


class NamedPrefixes:
    """Holds the full blocks of each prefix by a table of its own, as a sequence would that never ends.

    They take at most a share of the pool, and always leave the longest sequence the room that it needs: so they can
    stop nobody for ever.
    """

    def __init__(self, tables: BlockTables, *, share: float, max_model_len: int) -> None:
        self._tables = tables
        spare = tables.num_blocks - tables.blocks_for(max_model_len)
        self.most_blocks = max(0, min(int(share * tables.num_blocks), spare))
        """That may be held."""
        self._prefixes: dict[PrefixKey, NamedPrefix] = {}
        self._last_seq_id: SeqId = 0
        self.num_blocks = 0
        """Blocks that are held; one that several prefixes begin with counts once."""

    @property
    def all(self) -> list[NamedPrefix]:
        """All of them, the oldest first."""
        return list(self._prefixes.values())

    @property
    def first_expiry(self) -> float | None:
        """When the first of them expires; None if none does."""
        times = (prefix.expires_at for prefix in self._prefixes.values())
        return min((time for time in times if time is not None), default=None)

    def check(self, num_tokens: int) -> None:
        """Raise the UserError of a prefix of this length that could never be held. Changes nothing."""
        size = self._tables.block_size
        if self.most_blocks == 0:
            raise UnsupportedParameterError(
                "named prefixes need the prefix cache, a share of the pool (--named-prefix-share), and a pool larger "
                f"than one sequence of --max-model-len; this one has {self._tables.num_blocks} blocks of {size}",
                parameter="name",
            )
        if num_tokens < size:
            raise InvalidParameterError(
                f"a named prefix must have at least {size} tokens, one block; given: {num_tokens}",
                parameter="prompt",
                value=num_tokens,
            )
        self._check_blocks(num_tokens // size)

    def pin(
        self,
        key: PrefixKey,
        token_ids: "array[int]",
        expires_at: float | None,
    ) -> NamedPrefix:
        """Hold the full blocks of tokens that have just been computed, in place of what had the name before.

        Raises CapacityError, having changed nothing, if named prefixes would hold more than their share.
        """
        num_full = len(token_ids) // self._tables.block_size
        chain = self._tables.chain(key.cache_salt)
        match = self._tables.match(chain, token_ids, num_full * self._tables.block_size)
        assert len(match.blocks) == num_full, f"{len(match.blocks)} of {num_full} blocks are found"
        before = self._prefixes.get(key)
        if before is None and len(self._prefixes) >= MOST_NAMES:
            raise CapacityError(
                f"there may be at most {MOST_NAMES} named prefixes; give one up", parameter="name"
            )
        others = [prefix for prefix in self._prefixes.values() if prefix is not before]
        self._check_blocks(len(self._held(others) | set(match.blocks)))
        self._last_seq_id -= 1
        self._tables.attach(self._last_seq_id, match)
        prefix = NamedPrefix(key, len(token_ids), num_full, expires_at, self._last_seq_id)
        self.unpin(key)
        self._prefixes[key] = prefix
        self._count()
        return prefix

    def unpin(self, key: PrefixKey) -> bool:
        """Let the blocks of a prefix go: they stay in the cache until others need them. False: nobody has that name."""
        prefix = self._prefixes.pop(key, None)
        if prefix is None:
            return False
        self._tables.free(prefix.seq_id)
        self._count()
        return True

    def expire(self, now: float) -> bool:
        """Let those go whose time has come. Returns whether there were any."""
        if not self._prefixes:
            return False
        gone = [
            prefix.key
            for prefix in self._prefixes.values()
            if prefix.expires_at is not None and prefix.expires_at <= now
        ]
        for key in gone:
            self.unpin(key)
        return bool(gone)

    def _held(self, prefixes: list[NamedPrefix]) -> set[int]:
        return {block for prefix in prefixes for block in self._tables.blocks(prefix.seq_id)}

    def _count(self) -> None:
        self.num_blocks = len(self._held(self.all))

    def _check_blocks(self, num_blocks: int) -> None:
        if num_blocks > self.most_blocks:
            raise CapacityError(
                f"named prefixes may hold {self.most_blocks} of the {self._tables.num_blocks} blocks of "
                f"{self._tables.block_size} tokens (--named-prefix-share, and room for one sequence of "
                f"--max-model-len); with this one they would hold {num_blocks}",
                parameter="prompt",
                value=num_blocks,
            )
