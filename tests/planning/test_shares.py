"""Several models on one machine: what they get fits together, and what does not is refused with what does."""

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import CacheConfig, EngineConfig, ModelConfig
from octavo.engine.build import facts_of
from octavo.errors import ConfigError, MemoryShortageError
from octavo.machine import Machine, inspect_machine
from octavo.models.outline import outline_of_numbers
from octavo.planning.shares import Member, split_cpus, split_memory

GIB = 1024**3
SMALL = outline_of_numbers(
    {
        "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192,
    }
)  # fmt: skip
"""A Llama of 1.2 billion weights in bfloat16: 2.8 GiB, and 32 KiB a token."""


def machine(gib: float) -> Machine:
    size = int(gib * GIB)
    return replace(inspect_machine(), memory_total=size, memory_available=size, num_cores=4)


def member(name: str, **cache: object) -> Member:
    config = EngineConfig(cache=CacheConfig(**cache), num_threads=2)  # type: ignore[arg-type]
    return Member(name, config, lambda tried: facts_of(SMALL, tried))


def test_all_fit_together_and_nothing_is_left_open() -> None:
    there = machine(24)
    shares = split_memory([member("a"), member("b"), member("c", num_blocks=100)], there)
    assert [share.name for share in shares] == ["a", "b", "c"]
    needed = sum(s.memory.weights + s.memory.scratch + s.memory.pool for s in shares)
    assert needed <= there.memory_available - 2 * GIB
    assert needed > there.memory_available - 3 * GIB
    first, second, third = shares
    assert first.memory.pool == second.memory.pool > 4 * GIB
    assert third.resolved.num_blocks == 100
    for share in shares:
        cache = share.config.cache
        assert (cache.num_blocks is None) != (cache.kv_cache_memory_bytes is None)


def test_what_one_does_not_want_goes_to_the_others() -> None:
    few = replace(member("few").config, model=ModelConfig(), scheduler=EngineConfig().scheduler)
    few = replace(few, scheduler=replace(few.scheduler, max_num_seqs=2))
    shares = split_memory(
        [Member("few", few, lambda tried: facts_of(SMALL, tried)), member("many")], machine(24)
    )
    assert shares[0].resolved.num_blocks == 2 * 8192 // 16
    assert shares[1].memory.pool > 10 * GIB


def test_what_does_not_fit_is_refused_with_what_does() -> None:
    there = machine(12)
    members = [
        member("a", kv_cache_memory_bytes=4 * GIB),
        member("b", kv_cache_memory_bytes=4 * GIB),
    ]
    with pytest.raises(MemoryShortageError) as caught:
        split_memory(members, there)
    message = str(caught.value)
    assert "2 models need" in message and "available 12.00 GiB of 12.00 GiB" in message
    assert "a: weights" in message and ", pages 4.00 GiB; b: weights" in message
    advice = message.partition("What fits: ")[2]
    for name, text in (part.split(": ", 1) for part in advice.split(", ")):
        flags = shlex.split(text)
        value = int(flags[flags.index("--kv-cache-memory-bytes") + 1])
        i = [m.name for m in members].index(name)
        members[i] = member(name, kv_cache_memory_bytes=value)
    split_memory(members, there)  # as advised


def test_models_that_no_setting_makes_fit() -> None:
    with pytest.raises(MemoryShortageError, match=r"What fits: all but a; or all but b"):
        split_memory([member("a"), member("b")], machine(5))
    with pytest.raises(MemoryShortageError, match="No setting near these fits"):
        split_memory([member("a"), member("b")], machine(2))


def test_a_mistake_names_its_model() -> None:
    wrong = member("wrong", num_blocks=1, kv_cache_memory_bytes=1)
    with pytest.raises(ConfigError, match=r"^wrong: num_blocks and kv_cache_memory_bytes"):
        split_memory([member("right"), wrong], machine(24))


CORES = [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_cores_are_divided() -> None:
    shares = split_cpus({"a": None, "b": None}, CORES, 4)
    assert [shares[name].num_threads for name in "ab"] == [2, 2]
    assert [shares[name].cpus for name in "ab"] == [(0, 4, 1, 5), (2, 6, 3, 7)]
    shares = split_cpus({"a": 3, "b": None}, CORES, 4)
    assert (shares["a"].num_threads, shares["b"].cpus) == (3, (3, 7))


def test_more_models_than_cores_share_them() -> None:
    shares = split_cpus({"a": None, "b": None, "c": None}, CORES[:2], 2)
    assert [share.num_threads for share in shares.values()] == [1, 1, 1]
    assert [share.cpus for share in shares.values()] == [None, None, None]


@given(
    st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_no_core_is_given_twice(wanted: list[int | None], num_cores: int, num_threads: int) -> None:
    num_threads = min(num_threads, num_cores)
    cores = [(2 * i, 2 * i + 1) for i in range(num_cores)]
    names = {str(i): count for i, count in enumerate(wanted)}
    shares = split_cpus(names, cores, num_threads)
    assert set(shares) == set(names)
    for name, count in names.items():
        assert shares[name].num_threads == count if count else shares[name].num_threads >= 1
    owned = [cpu for share in shares.values() for cpu in share.cpus or ()]
    assert len(owned) == len(set(owned))
    if owned:
        assert sum(share.num_threads for share in shares.values()) <= num_threads
