"""Limits of sampling options, and the one form that values take."""

import math
from typing import Any

import pytest

from octavo.core.sampling_params import (
    MAX_N,
    MAX_REPETITION_PENALTY,
    MAX_TEMPERATURE,
    MAX_TOP_K,
    MIN_TEMPERATURE,
    SamplingParams,
)
from octavo.errors import InvalidParameterError

NAN, INF = math.nan, math.inf


def make(**options: Any) -> SamplingParams:
    return SamplingParams(**options)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", (0, -1, MAX_N + 1, 1.0, True, "2", None)),
        ("presence_penalty", (-2.1, 2.1, NAN, "1", True)),
        ("frequency_penalty", (-2.1, 2.1, NAN)),
        ("repetition_penalty", (0.0, -1.0, 2 * MAX_REPETITION_PENALTY, NAN, INF)),
        ("temperature", (-0.1, 2 * MAX_TEMPERATURE, NAN, INF, None)),
        ("top_p", (0.0, -0.1, 1.1, NAN)),
        ("top_k", (-2, 1.5)),
        ("min_p", (-0.1, 1.1, NAN)),
        ("seed", (2**63, -(2**63) - 1, 1.5)),
        ("max_tokens", (0, -1, 1.5)),
        ("min_tokens", (-1, 17)),
        ("logprobs", (-2, 1.5, True)),
        ("prompt_logprobs", (-2, 1.5, True)),
        ("stop", ("", ["a", ""], [1])),
        ("bad_words", ([""], [1])),
        ("stop_token_ids", ([-1], [1.5], ["1"])),
        ("allowed_token_ids", ([], [-1], [True])),
        ("bad_words_token_ids", ([[]], [[-1]], [[1.5]])),
        ("logit_bias", ({"x": 1.0}, {1.5: 1.0}, {True: 1.0}, {1: NAN}, {1: INF}, {1: "2"})),
        ("ignore_eos", ("no", 1, None)),
        ("detokenize", (0,)),
        ("skip_special_tokens", (None,)),
        ("spaces_between_special_tokens", (1,)),
        ("include_stop_str_in_output", ("yes",)),
    ],
)
def test_a_value_outside_its_limits_is_refused_by_name(name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(InvalidParameterError, match=name) as caught:
            make(**{name: value})
        assert caught.value.parameter == name


def test_the_limits_themselves_are_allowed() -> None:
    make(n=MAX_N, presence_penalty=-2, frequency_penalty=2.0, min_p=1.0, top_p=1.0, top_k=-1)
    make(seed=-(2**63), min_tokens=16, logprobs=-1, prompt_logprobs=0, max_tokens=None)
    make(temperature=MAX_TEMPERATURE, repetition_penalty=MAX_REPETITION_PENALTY)


def test_values_take_one_form() -> None:
    params = make(stop="x", stop_token_ids=[1, 2], bad_words=["y"], logit_bias={"5": 200, 6: -0.5})
    assert (params.stop, params.stop_token_ids, params.bad_words) == (("x",), (1, 2), ("y",))
    assert params.logit_bias == {5: 100.0, 6: -0.5}
    assert make(stop=None, seed=-1, logit_bias=None) == SamplingParams()
    assert make(top_k=2**40).top_k == MAX_TOP_K


def test_a_temperature_near_0_is_greedy_and_one_above_is_raised() -> None:
    assert make(temperature=9e-6, top_p=0.5, top_k=4, min_p=0.1) == SamplingParams(temperature=0.0)
    assert make(temperature=0).is_greedy
    assert make(temperature=1e-4).temperature == MIN_TEMPERATURE
    assert not make(temperature=MIN_TEMPERATURE).is_greedy
    with pytest.raises(InvalidParameterError, match="n must be 1 with greedy sampling"):
        make(temperature=0, n=2)


def test_stop_strings_need_text() -> None:
    with pytest.raises(InvalidParameterError, match="detokenize"):
        make(stop="x", detokenize=False)


@pytest.mark.parametrize(
    "options",
    [
        {"stop_token_ids": [50]},
        {"allowed_token_ids": [3, 50]},
        {"logit_bias": {50: 1.0}},
        {"logit_bias": {-1: 1.0}},
        {"bad_words_token_ids": [[1, 50]]},
        {"logprobs": 21},
        {"prompt_logprobs": -1},
    ],
)
def test_what_depends_on_the_model_is_checked_against_it(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        make(**options).verify(vocab_size=50, max_logprobs=20)
    assert caught.value.parameter in options


def test_what_fits_the_model_passes() -> None:
    params = make(stop_token_ids=[49], logit_bias={0: 1.0}, bad_words_token_ids=[[49]], logprobs=-1)
    params.verify(vocab_size=50, max_logprobs=50)
    params.verify(vocab_size=50, max_logprobs=-1)
