"""Pages that have a name stay, whatever is evicted."""

from array import array

import pytest

from octavo.core.named_prefixes import NamedPrefixes, PrefixKey
from octavo.errors import CapacityError, InvalidParameterError, UnsupportedParameterError
from support.scheduling import Rig, make_request

B = 4
PREFIX = [(3 * i) % 50 for i in range(18)]  # four full blocks and a rest


def prefix_rig(**options: object) -> Rig:
    defaults: dict[str, object] = {"num_blocks": 40, "named_prefix_share": 0.5}
    return Rig(**(defaults | options))  # type: ignore[arg-type]


def pin(
    rig: Rig,
    name: str = "p",
    tokens: list[int] = PREFIX,
    salt: str = "",
    until: float | None = None,
) -> None:
    request = make_request(
        f"pin-{name}-{salt}-{rig.scheduler._num_steps}", tokens, cache_salt=salt, max_tokens=1
    )
    rig.scheduler.named_prefixes.check(len(tokens))
    rig.scheduler.add(request)
    rig.run()
    rig.scheduler.named_prefixes.pin(PrefixKey(name, salt), array("i", tokens), until)
    rig.check()


def flood(rig: Rig) -> None:
    """Prompts that need every page there is, one after another."""
    for i in range(12):
        rig.scheduler.add(
            make_request(
                f"flood{i}{rig.scheduler._num_steps}", [i, 49, *range(i, i + 30)], max_tokens=20
            )
        )
    rig.run()


def cached(rig: Rig, name: str, tokens: list[int], salt: str = "") -> int:
    request = make_request(name, [*tokens, 7, 7, 7], cache_salt=salt, max_tokens=2)
    rig.scheduler.add(request)
    rig.run()
    rig.check_answer(request)
    return request.num_cached_tokens or 0


def test_a_pinned_prefix_survives_what_evicts_all_others() -> None:
    rig = prefix_rig()
    pin(rig)
    other = [1, *PREFIX]
    assert cached(rig, "other0", other) == 0
    flood(rig)
    assert cached(rig, "other1", other) == 0  # evicted
    flood(rig)
    assert cached(rig, "user", PREFIX) >= 16
    assert rig.scheduler.usage().num_blocks_pinned == 4


def test_given_up_it_is_as_any_other() -> None:
    rig = prefix_rig()
    pin(rig)
    assert rig.scheduler.named_prefixes.unpin(PrefixKey("p"))
    assert not rig.scheduler.named_prefixes.unpin(PrefixKey("p"))
    rig.check()
    assert cached(rig, "soon", PREFIX) >= 16
    flood(rig)
    assert cached(rig, "late", PREFIX) == 0
    assert rig.scheduler.usage().num_blocks_referenced == 0


def test_it_expires() -> None:
    rig = prefix_rig()
    pin(rig, "short", until=10.0)
    pin(rig, "for ever", [5, *PREFIX])
    prefixes = rig.scheduler.named_prefixes
    assert not prefixes.expire(9.9)
    assert prefixes.expire(10.0)
    assert [p.key.name for p in prefixes.all] == ["for ever"]
    assert prefixes.num_blocks == 4
    rig.check()


def test_the_same_name_again_is_in_place_of_the_first() -> None:
    rig = prefix_rig(named_prefix_share=0.1)  # four blocks
    pin(rig, until=1.0)
    pin(rig, until=2.0)
    pin(rig, tokens=[9, *PREFIX])
    (prefix,) = rig.scheduler.named_prefixes.all
    assert (prefix.num_tokens, prefix.num_blocks, prefix.expires_at) == (19, 4, None)


def test_salts_are_respected() -> None:
    rig = prefix_rig()
    pin(rig, salt="a")
    pin(rig, salt="b")
    flood(rig)
    assert rig.scheduler.named_prefixes.num_blocks == 8
    assert cached(rig, "x", PREFIX, "a") >= 16
    assert cached(rig, "y", PREFIX) == 0
    assert rig.scheduler.named_prefixes.unpin(PrefixKey("p", "a"))
    assert [p.key for p in rig.scheduler.named_prefixes.all] == [PrefixKey("p", "b")]


def test_what_several_begin_with_counts_once() -> None:
    rig = prefix_rig(named_prefix_share=0.15)  # six blocks
    pin(rig, "one", PREFIX[:16])
    pin(rig, "two", [*PREFIX[:16], 1, 2, 3, 4])
    assert rig.scheduler.named_prefixes.num_blocks == 5
    assert [p.num_blocks for p in rig.scheduler.named_prefixes.all] == [4, 5]


def test_their_share_is_bounded_and_a_refusal_changes_nothing() -> None:
    rig = prefix_rig(named_prefix_share=0.2)  # eight blocks
    pin(rig, "one")
    pin(rig, "two", [1, *PREFIX])
    with pytest.raises(CapacityError, match=r"8 of the 40 blocks of 4 .* would hold 12"):
        pin(rig, "three", [2, *PREFIX])
    assert rig.scheduler.named_prefixes.num_blocks == 8
    with pytest.raises(CapacityError):
        rig.scheduler.named_prefixes.check(100)
    rig.check()


def test_the_longest_sequence_always_has_room() -> None:
    rig = prefix_rig(num_blocks=20, max_model_len=64, named_prefix_share=1.0)  # 16 are for it
    assert rig.scheduler.named_prefixes.most_blocks == 4
    pin(rig)
    longest = make_request("long", 60, max_tokens=4, ignore_eos=True)
    rig.scheduler.add(longest)
    flood(rig)
    rig.check_answer(longest)


@pytest.mark.parametrize(
    "options",
    [{"prefix_caching": False}, {"named_prefix_share": 0.0}, {"num_blocks": 16}],
)
def test_where_there_is_no_room_for_any_it_is_said(options: dict[str, object]) -> None:
    rig = prefix_rig(**options)
    with pytest.raises(UnsupportedParameterError, match="--named-prefix-share"):
        rig.scheduler.named_prefixes.check(100)


def test_less_than_a_block_is_nothing_to_hold() -> None:
    with pytest.raises(InvalidParameterError, match="at least 4 tokens, one block; given: 3"):
        prefix_rig().scheduler.named_prefixes.check(3)


def test_names_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.core.named_prefixes.MOST_NAMES", 2)
    rig = prefix_rig()
    pin(rig, "one")
    pin(rig, "two")
    pin(rig, "two")
    with pytest.raises(CapacityError, match="at most 2 named"):
        pin(rig, "three")


def test_the_cache_can_be_reset_beside_it() -> None:
    rig = prefix_rig()
    pin(rig)
    assert not rig.scheduler.reset_prefix_cache()
    assert cached(rig, "user", PREFIX) >= 16
    assert isinstance(rig.scheduler.named_prefixes, NamedPrefixes)
