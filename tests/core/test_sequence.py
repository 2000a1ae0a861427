"""Sequence and its rank."""

from array import array

import pytest

from octavo.core.sequence import Rank, RankedSequences, Sequence


def sequence(priority: int, arrival: int, sample_index: int = 0) -> Sequence:
    return Sequence(
        seq_id=arrival,
        request_id=f"r{arrival}",
        rank=Rank(priority, arrival, sample_index),
        token_ids=array("i", [5, 6, 7]),
    )


def test_computed_catches_up_with_known() -> None:
    seq = sequence(0, 0)
    assert (seq.prompt_len, seq.num_pending, seq.num_outputs) == (3, 3, 0)
    seq.num_computed = 3
    seq.append(9)
    assert (seq.prompt_len, seq.num_pending, seq.num_outputs) == (3, 1, 1)
    assert list(seq.token_ids) == [5, 6, 7, 9]


def test_the_prompt_is_shared_until_the_first_token() -> None:
    prompt = array("i", [5, 6])
    first, second = (Sequence(i, "r", Rank(0, 0, i), prompt) for i in range(2))
    assert first.token_ids is prompt
    first.append(1)
    first.append(2)
    second.append(3)
    assert list(prompt) == [5, 6]
    assert (list(first.token_ids), list(second.token_ids)) == ([5, 6, 1, 2], [5, 6, 3])


def test_rank_is_priority_then_turn_then_index() -> None:
    ranked = RankedSequences()
    members = [
        sequence(1, 0),
        sequence(0, 2, 1),
        sequence(0, 2, 0),
        sequence(-1, 3),
        sequence(0, 1),
    ]
    for seq in members:
        ranked.add(seq)
    assert [seq.rank for seq in ranked] == [(-1, 3, 0), (0, 1, 0), (0, 2, 0), (0, 2, 1), (1, 0, 0)]
    assert [seq.rank.turn for seq in reversed(ranked)] == [0, 2, 2, 1, 3]
    assert (ranked[0], len(ranked)) == (members[3], 5)
    ranked.remove(members[2])
    assert [seq.rank for seq in ranked] == [(-1, 3, 0), (0, 1, 0), (0, 2, 1), (1, 0, 0)]


def test_only_members_are_removed() -> None:
    ranked = RankedSequences()
    ranked.add(sequence(0, 1))
    with pytest.raises(AssertionError, match="sequence 0 is not in its place"):
        ranked.remove(sequence(0, 0))
