"""Philox against the known answers published with Random123."""

import pytest

from octavo.backends.reference.philox import Words4, philox4x32, uniform

KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter: Words4, key: tuple[int, int], expected: Words4) -> None:
    assert philox4x32(counter, key) == expected


def test_uniform_is_the_words_of_its_seed_and_index() -> None:
    w0, w1, _, _ = philox4x32((7, 0, 0, 0), (0x89ABCDEF, 0x01234567))
    assert uniform(0x0123456789ABCDEF, 7) == ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53


def test_negative_seeds_are_their_64_bits() -> None:
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)


def test_uniform_is_below_one_and_even() -> None:
    values = [uniform(seed, index) for seed in range(40) for index in range(50)]
    assert all(0 <= value < 1 for value in values)
    assert len(set(values)) == len(values)
    assert abs(sum(values) / len(values) - 0.5) < 0.02
