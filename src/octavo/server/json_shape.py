"""What a JSON text is made of, counted before it is parsed: parsing holds the interpreter lock from begin to end.

A body of 16 MB may be one text, parsed in 40 ms, or a million members of an object, which take 8 s.
"""

from dataclasses import dataclass

import numpy as np

from octavo.errors import InvalidParameterError

MAX_VALUES = 2**21
"""Commas: elements of arrays, such as token ids, and members of objects."""
MAX_CONTAINERS = 2**18
"""Arrays and objects."""
MAX_MEMBERS = 2**18
"""Members of all objects together."""
MAX_FLOATS = 2**18
"""Numbers with a fraction or an exponent, and `true` and `false`."""
_QUOTE = ord('"')


@dataclass(frozen=True, slots=True)
class _Limit:
    signs: bytes
    """Any of these, outside texts, is one of what is limited."""
    most: int
    what: str


_LIMITS = (
    _Limit(b",", MAX_VALUES, "elements"),
    _Limit(b"[{", MAX_CONTAINERS, "arrays and objects"),
    _Limit(b":", MAX_MEMBERS, "members of objects"),
    _Limit(b".eE", MAX_FLOATS, "numbers with a fraction or an exponent"),
)


def check_shape(body: bytes, what: str) -> None:
    """Raise InvalidParameterError for a text that would take too long to parse."""
    # First all signs, those in texts too, which is quick; nearly always that is little enough.
    doubtful = [
        limit
        for limit in _LIMITS
        if len(body) > limit.most and sum(map(body.count, _each(limit.signs))) > limit.most
    ]
    if not doubtful:
        return
    # Pairs of backslashes first: what is left before a quote escapes it.
    plain = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    signs = np.frombuffer(plain, np.uint8)
    is_outside = (np.cumsum(signs == _QUOTE, dtype=np.uint8) & 1) == 0
    for limit in doubtful:
        count = sum(int(np.count_nonzero((signs == sign) & is_outside)) for sign in limit.signs)
        if count > limit.most:
            raise InvalidParameterError(
                f"{what} may hold at most {limit.most} {limit.what}; given: {count}"
            )


def _each(signs: bytes) -> list[bytes]:
    return [signs[i : i + 1] for i in range(len(signs))]
