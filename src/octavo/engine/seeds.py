"""Seeds of requests that bring none."""

import secrets

from octavo.core.request import splitmix64

_MASK64 = 2**64 - 1


class SeedSource:
    """A seed for each request: its own; else from a base and the order of requests; without a base at random."""

    def __init__(self, base: int | None) -> None:
        # Mixed first, or request 1 under base 0 would be request 0 under base 1.
        self._base = None if base is None else splitmix64(base & _MASK64)
        self._count = 0

    def next(self, own: int | None) -> int:
        """The seed, unsigned 64 bits, of the next request, which brought `own`."""
        if own is not None:
            return own & _MASK64
        if self._base is None:
            return secrets.randbits(64)
        self._count += 1
        return splitmix64((self._base + self._count) & _MASK64)
