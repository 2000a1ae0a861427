"""The sampling specification, rule by rule."""

from array import array
from collections import Counter
from typing import Any

import numpy as np
import pytest

from octavo.backends.reference.philox import uniform
from octavo.backends.reference.sampler import (
    NOT_FINITE,
    NOTHING_ALLOWED,
    Row,
    adjust_logits,
    kept_ids,
    largest_ids,
    sample_token,
    token_logprobs,
)
from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Sample


def sample(
    *,
    seed: int = 0,
    output_index: int = 0,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    suppressed: tuple[int, ...] = (),
    **params: Any,
) -> Sample:
    prompt, output = prompt or [], output or []
    return Sample(
        5,
        SamplingParams(**params),
        seed,
        output_index,
        array("i", prompt + output),
        len(prompt),
        suppressed,
    )


def row(*values: float) -> Row:
    return np.array(values, np.float32)


def draws(logits: Row, count: int = 400, **params: Any) -> Counter[int]:
    """Which ids come up for many seeds."""
    return Counter(sample_token(logits, sample(seed=s, **params)).token_id for s in range(count))


def test_greedy_takes_the_largest_and_the_lowest_id_among_equals() -> None:
    result = sample_token(row(1, 3, 3, 2), sample(temperature=0.0))
    assert (result.token_id, result.error, result.logprobs) == (1, None, None)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_an_error(bad: float) -> None:
    for temperature in (0.0, 1.0):
        assert sample_token(row(1, bad, 2), sample(temperature=temperature)).error == NOT_FINITE


def test_a_row_of_nothing_but_minus_infinity_is_an_error() -> None:
    assert sample_token(row(-np.inf, -np.inf), sample()).error == NOTHING_ALLOWED


@pytest.mark.parametrize("penalty", [1e-6, 0.5])
def test_a_penalty_that_overflows_fails_its_request_only(penalty: float) -> None:
    step = sample(repetition_penalty=penalty, output=[0, 1])
    assert sample_token(row(3e38, 0, 1), step).error == NOT_FINITE


def test_all_ids_masked_is_an_error() -> None:
    result = sample_token(row(1, 2), sample(allowed_token_ids=(1,), suppressed=(1,)))
    assert result.error == NOTHING_ALLOWED


def test_minus_infinity_in_a_row_is_never_drawn() -> None:
    assert set(draws(row(-np.inf, 0, 0))) == {1, 2}


def test_allowed_ids_are_the_only_ones() -> None:
    assert set(draws(row(9, 1, 1, 9), allowed_token_ids=(1, 2))) == {1, 2}


def test_bad_word_of_one_token_is_forbidden() -> None:
    assert adjust_logits(row(1, 2), sample(bad_words_token_ids=((1,),))).tolist() == [1, -np.inf]


@pytest.mark.parametrize(
    ("prompt", "output", "forbidden"),
    [
        ([0, 1], [2], True),
        ([0], [1, 2], True),
        ([1, 2], [], True),
        ([2], [1], False),
        ([], [2], False),
        ([], [], False),
    ],
)
def test_last_id_of_a_bad_word_is_forbidden_after_the_others(
    prompt: list[int], output: list[int], forbidden: bool
) -> None:
    step = sample(bad_words_token_ids=((1, 2, 3),), prompt=prompt, output=output)
    assert np.isneginf(adjust_logits(row(0, 0, 0, 0), step)[3]) == forbidden


def test_suppressed_ids_are_forbidden() -> None:
    assert sample_token(row(1, 5), sample(temperature=0.0, suppressed=(1,))).token_id == 0


def test_bias_is_added_and_cannot_lift_a_mask() -> None:
    step = sample(logit_bias={0: 2.5, 1: 100.0}, suppressed=(1,))
    assert adjust_logits(row(1, 2, 3), step).tolist() == [3.5, -np.inf, 3]


def test_repetition_penalty_covers_prompt_and_output_once() -> None:
    step = sample(repetition_penalty=2.0, prompt=[0, 0], output=[1])
    assert adjust_logits(row(4, -4, 4), step).tolist() == [2, -8, 4]


def test_frequency_and_presence_penalties_cover_the_output() -> None:
    step = sample(frequency_penalty=0.5, presence_penalty=1.0, prompt=[2], output=[0, 0, 1])
    assert adjust_logits(row(4, 4, 4), step).tolist() == [2, 2.5, 4]


def test_penalties_follow_the_bias_and_repetition_comes_first() -> None:
    step = sample(logit_bias={0: 4.0}, repetition_penalty=2.0, frequency_penalty=1.0, output=[0])
    assert adjust_logits(row(2, 0), step).tolist() == [(2 + 4) / 2 - 1, 0]


def test_logits_given_are_not_changed() -> None:
    logits = row(1, 2, 3)
    sample_token(logits, sample(logit_bias={1: 3.0}, allowed_token_ids=(1,), output=[1]))
    assert logits.tolist() == [1, 2, 3]


def test_min_p_is_relative_to_the_most_likely() -> None:
    probs = np.array([0.5, 0.26, 0.24])
    assert kept_ids(probs, sample(min_p=0.5)).tolist() == [0, 1]
    assert kept_ids(probs, sample(min_p=1.0)).tolist() == [0]


@pytest.mark.parametrize(
    ("top_k", "expected"), [(1, [1]), (2, [1, 3]), (3, [0, 1, 3]), (9, [0, 1, 2, 3])]
)
def test_top_k_keeps_the_largest_and_lower_ids_among_equals(
    top_k: int, expected: list[int]
) -> None:
    probs = np.array([0.2, 0.3, 0.2, 0.3])
    assert kept_ids(probs, sample(top_k=top_k)).tolist() == expected


@pytest.mark.parametrize("off", [0, -1])
def test_top_k_off(off: int) -> None:
    assert len(kept_ids(np.full(7, 1 / 7), sample(top_k=off))) == 7


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (1e-8, [1]),
        (0.5, [1]),
        (0.51, [1, 2]),
        (0.75, [1, 2]),
        (0.76, [0, 1, 2]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_shortest_prefix_that_reaches_it(top_p: float, expected: list[int]) -> None:
    probs = np.array([0.125, 0.5, 0.25, 0.125])
    assert kept_ids(probs, sample(top_p=top_p)).tolist() == expected


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    probs = np.array([0.4, 0.2, 0.2, 0.2])
    # Of the two kept, 0.4 is 2/3: it reaches 0.6 alone, and would not as a share of the whole row.
    assert kept_ids(probs, sample(top_k=2, top_p=0.6)).tolist() == [0]


def test_the_draw_walks_the_ids_in_order() -> None:
    logits = np.log(row(0.1, 0.2, 0.3, 0.4))
    edges = np.array([0.1, 0.3, 0.6, 1.0])
    for seed in range(200):
        expected = int(np.searchsorted(edges, uniform(seed, 9), side="right"))
        assert sample_token(logits, sample(seed=seed, output_index=9)).token_id == expected


def test_draws_follow_the_probabilities() -> None:
    counts = draws(np.log(row(0.1, 0.2, 0.7)), count=4000)
    for token_id, share in enumerate((0.1, 0.2, 0.7)):
        assert abs(counts[token_id] / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_temperature_sharpens_and_flattens() -> None:
    logits = row(0, 1)
    assert draws(logits, temperature=0.05)[1] == 400
    assert abs(draws(logits, temperature=100.0)[1] - 200) < 60


@pytest.mark.parametrize("temperature", [1e-45, 1e-12, 1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("extra", [{}, {"top_p": 1e-8}, {"min_p": 1.0}, {"top_k": 1}])
def test_tiny_temperatures_are_greedy(temperature: float, extra: dict[str, Any]) -> None:
    logits = row(1e4, -1e4, 1e4 + 1, 0.5)
    for seed in range(20):
        result = sample_token(logits, sample(seed=seed, temperature=temperature, **extra))
        assert (result.token_id, result.error) == (2, None)


def test_huge_logits_at_huge_temperature() -> None:
    result = sample_token(row(3e38, -3e38), sample(temperature=1e30))
    assert (result.token_id, result.error) == (0, None)


def test_logprobs_are_of_the_raw_row_whatever_the_sampler_does() -> None:
    logits = np.log(row(0.1, 0.2, 0.7))
    step = sample(temperature=0.0, logprobs=2, allowed_token_ids=(1,), logit_bias={1: 50.0})
    logprobs = sample_token(logits, step).logprobs
    assert logprobs is not None
    assert (logprobs.token_id, logprobs.rank) == (1, 2)
    assert logprobs.logprob == pytest.approx(np.log(0.2))
    assert [token_id for token_id, _ in logprobs.top] == [2, 1]
    assert [value for _, value in logprobs.top] == pytest.approx([np.log(0.7), np.log(0.2)])


def test_ranks_and_top_with_equals() -> None:
    logits = row(1, 2, 2, 0, 2)
    assert token_logprobs(logits, 4, 2).rank == 1
    assert token_logprobs(logits, 0, 2).rank == 4
    assert [i for i, _ in token_logprobs(logits, 0, 2).top] == [1, 2]
    assert [i for i, _ in token_logprobs(logits, 0, -1).top] == [1, 2, 4, 0, 3]
    assert token_logprobs(logits, 0, 0).top == ()


def test_largest_ids_equals_a_full_sort() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        values = random.integers(0, 6, 30).astype(np.float32)
        expected = sorted(range(30), key=lambda i, v=values: (-v[i], i))  # type: ignore[misc]
        for count in (0, 1, 5, 29, 30, 40):
            assert largest_ids(values, count).tolist() == expected[:count]
