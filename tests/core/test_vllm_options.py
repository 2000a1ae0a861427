"""Options of vLLM's `SamplingParams` that this one has not."""

from dataclasses import fields, replace
from typing import Any

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.core.vllm_options import NO_EFFECT, REFUSED
from octavo.errors import UnsupportedParameterError


def make(**options: Any) -> SamplingParams:
    return SamplingParams(**options)


def test_what_asks_for_nothing_changes_nothing() -> None:
    neutral = {name: values[0] for name, (_, values) in REFUSED.items()}
    ignored = dict.fromkeys(NO_EFFECT, True)
    assert make(**neutral, **ignored, top_k=3) == SamplingParams(top_k=3)
    assert make(best_of=2, n=2) == SamplingParams(n=2)
    assert make(best_of=1) == SamplingParams()


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_answers_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameterError, match=f"{name} is not supported: ") as caught:
        make(**{name: 7})
    assert (caught.value.parameter, caught.value.value) == (name, 7)


def test_no_option_is_both_honoured_and_refused() -> None:
    own = {field.name for field in fields(SamplingParams)}
    assert not own & NO_EFFECT and not own & set(REFUSED) and not NO_EFFECT & set(REFUSED)


def test_an_option_that_nobody_knows_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="temprature"):
        make(temprature=1.0)


def test_copies_keep_every_value() -> None:
    params = SamplingParams(n=3, stop=("x",), logit_bias={1: 2.0}, bad_words=("y",), seed=4)
    assert params.clone() == params
    assert replace(params, n=1) == SamplingParams(
        n=1, stop=("x",), logit_bias={1: 2.0}, bad_words=("y",), seed=4
    )
