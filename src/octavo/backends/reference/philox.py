"""Philox4x32-10 (Salmon et al., SC'11): random numbers that are a function of a key and a counter.

A draw depends on the seed and the position of its token alone, never on what else is in the batch.
"""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF

Words4 = tuple[int, int, int, int]


def philox4x32(counter: Words4, key: tuple[int, int]) -> Words4:
    """Four random 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & _MASK,
            (first >> 32) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, output_index: int) -> float:
    """The number in [0, 1), of 53 bits, that draws token `output_index` of a sequence with this seed."""
    seed &= (1 << 64) - 1
    w0, w1, _, _ = philox4x32((output_index, 0, 0, 0), (seed & _MASK, seed >> 32))
    return ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53
