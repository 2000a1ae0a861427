"""Beams over a table of made-up next tokens; that they are transformers' beams: tests/offline/test_beam_search.py."""

from itertools import product
from math import log
from typing import Any

import pytest

from octavo.core.beam_search import BeamSearch, BeamSearchParams
from octavo.errors import InvalidParameterError, UnsupportedParameterError

END = 0


def next_tokens(token_ids: tuple[int, ...]) -> list[tuple[int, float]]:
    """Log-probabilities of four tokens, which depend on all before. Best first."""
    weights = [1 + hash((token_id, *token_ids)) % 97 for token_id in range(4)]
    total = sum(weights)
    ranked = sorted(range(4), key=lambda token_id: -weights[token_id])
    return [(token_id, log(weights[token_id] / total)) for token_id in ranked]


def search(ends: frozenset[int] = frozenset({END}), **params: Any) -> BeamSearch:
    beams = BeamSearch(BeamSearchParams(**params), ends, params["max_tokens"])
    while beams.running:
        beams.advance([next_tokens(beam.token_ids) for beam in beams.running])
    return beams


def test_a_search_that_is_wide_enough_finds_the_best_of_all() -> None:
    """16 beams hold all beginnings of two tokens."""
    found = search(frozenset(), beam_width=16, max_tokens=3)
    every = []
    for token_ids in product(range(4), repeat=3):
        logprob = sum(dict(next_tokens(token_ids[:i]))[token_ids[i]] for i in range(3))
        every.append((logprob / 3, token_ids))
    every.sort(reverse=True)
    assert found.ended[0].beam.token_ids == every[0][1]
    scores = [ended.score for ended in found.ended]
    assert scores == pytest.approx([score for score, _ in every[:16]])
    assert all(ended.end_token_id is None for ended in found.ended)


def test_scores_fall_and_only_whole_answers_are_returned() -> None:
    found = search(beam_width=4, max_tokens=8)
    scores = [ended.score for ended in found.ended]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4
    for ended in found.ended:
        *before, last = ended.beam.token_ids
        assert END not in before
        assert (last == END) == (ended.end_token_id == END)
        assert last == END or len(ended.beam.token_ids) == 8


def test_ignored_end_tokens_end_nothing() -> None:
    found = search(beam_width=2, max_tokens=6, ignore_eos=True)
    assert all(len(ended.beam.token_ids) == 6 for ended in found.ended)


def test_a_penalty_chooses_between_short_and_long() -> None:
    lengths = {
        penalty: len(
            search(beam_width=4, max_tokens=12, length_penalty=penalty).ended[0].beam.token_ids
        )
        for penalty in (-2.0, 4.0)
    }
    assert lengths[-2.0] < lengths[4.0]


@pytest.mark.parametrize(
    ("params", "error", "name"),
    [
        ({"beam_width": 1}, InvalidParameterError, "beam_width"),
        ({"beam_width": 17}, InvalidParameterError, "beam_width"),
        ({"beam_width": True}, InvalidParameterError, "beam_width"),
        ({"max_tokens": 0}, InvalidParameterError, "max_tokens"),
        ({"temperature": 0.7}, UnsupportedParameterError, "temperature"),
        ({"length_penalty": float("nan")}, InvalidParameterError, "length_penalty"),
        ({"early_stopping": "sometimes"}, InvalidParameterError, "early_stopping"),
    ],
)
def test_mistakes_are_named(params: dict[str, Any], error: type[Exception], name: str) -> None:
    with pytest.raises(error) as caught:
        BeamSearchParams(**({"beam_width": 4, "max_tokens": 4} | params))
    assert caught.value.parameter == name  # type: ignore[attr-defined]
