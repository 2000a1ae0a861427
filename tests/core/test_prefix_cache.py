"""Keys that stand for all that came before, and the index of what they lead to."""

from array import array
from hashlib import blake2b

import pytest

from octavo.core.prefix_cache import KEY_SIZE, PrefixCache, PrefixChain

IDS = array("i", range(12))


def chain(cache: PrefixCache, *names: str) -> PrefixChain:
    return PrefixChain(cache.root(*names), 4)


def test_a_key_stands_for_every_token_before_its_end() -> None:
    cache = PrefixCache(b"model")
    keys = [chain(cache).key(2, IDS)]
    for position in range(12):
        other = IDS[:]
        other[position] += 100
        keys.append(chain(cache).key(2, other))
    assert len(set(keys)) == 13
    assert chain(cache).key(2, IDS) == keys[0]
    assert {len(key) for key in keys} == {KEY_SIZE}


def test_tenants_adapters_and_models_have_keys_of_their_own() -> None:
    cache = PrefixCache(b"model")
    roots = [cache.root(), cache.root(""), cache.root("a"), cache.root("a", "b"), cache.root("ab")]
    roots.append(PrefixCache(b"other").root("a"))
    assert len({PrefixChain(root, 4).key(0, IDS) for root in roots}) == len(roots)
    cache.root("\udc80")  # what JSON may hold and UTF-8 may not


def test_each_block_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    num_hashed = 0

    def counting(*args: object, **options: object) -> "blake2b":
        nonlocal num_hashed
        num_hashed += 1
        return blake2b(*args, **options)  # type: ignore[arg-type]

    cache = PrefixCache(b"model")
    keys = chain(cache)
    monkeypatch.setattr("octavo.core.prefix_cache.blake2b", counting)
    for _ in range(3):
        for number in (0, 2, 1):
            keys.key(number, IDS)
            keys.parent(number, IDS)
    assert num_hashed == 3
    keys.fork().key(2, IDS)
    assert num_hashed == 3


def test_keys_of_blocks_that_are_not_full_are_never_made() -> None:
    with pytest.raises(AssertionError, match="block 2 is not full"):
        chain(PrefixCache(b"model")).key(2, IDS[:11])


def test_what_is_added_is_found_until_it_is_removed() -> None:
    cache = PrefixCache(b"model")
    keys = chain(cache)
    first, second = keys.key(0, IDS), keys.key(1, IDS)
    assert cache.add(keys.parent(0, IDS), IDS[:4], 7, first) is None
    assert cache.add(first, IDS[4:8], 3, second) is None
    assert (cache.find(first), cache.find(second), len(cache)) == (7, 3, 2)
    assert cache.find_tail(first, array("i", [4, 5, 9])) == (3, 2)
    assert cache.find_tail(first, array("i", [5])) is None
    assert cache.find_tail(second, array("i", [4])) is None
    assert cache.find_tail(first, array("i")) is None
    assert cache.check_integrity() == {3, 7}
    cache.remove(3)
    assert (cache.find(second), cache.find_tail(first, array("i", [4]))) == (None, None)
    assert cache.check_integrity() == {7}


def test_the_latest_end_that_begins_alike_takes_the_place_of_the_one_before() -> None:
    cache = PrefixCache(b"model")
    parent = cache.root()
    assert cache.add(parent, array("i", [1, 2]), 0, None) is None
    assert cache.add(parent, array("i", [9]), 5, None) is None
    assert cache.add(parent, array("i", [1, 2, 3]), 1, None) == 0
    assert cache.find_tail(parent, array("i", [1, 2, 3, 4])) == (1, 3)
    key = PrefixChain(parent, 4).key(0, array("i", [1, 2, 3, 4]))
    assert cache.add(parent, array("i", [1, 2, 3, 4]), 2, key) == 1
    assert cache.check_integrity() == {2, 5}
    other = PrefixChain(parent, 4).key(0, array("i", [1, 7, 7, 7]))
    assert cache.add(parent, array("i", [1, 7, 7, 7]), 3, other) is None  # both have their keys
    assert cache.find_tail(parent, array("i", [1, 2, 3])) == (3, 1)
    assert (cache.find(key), cache.find(other)) == (2, 3)
    cache.remove(2)
    assert cache.find_tail(parent, array("i", [1, 7])) == (3, 2)
    assert cache.check_integrity() == {3, 5}
