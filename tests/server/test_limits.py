"""What a single request may cost: each limit holds, and just below it nothing is refused."""

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.errors import ContextLengthError, InvalidParameterError
from octavo.server.openai.limits import (
    MAX_CHARS_PER_TOKEN,
    MAX_LISTED_IDS,
    MAX_LOGPROBS,
    MAX_PROMPT_LOGPROBS,
    MAX_WORDS_LEN,
    check_listed_ids,
    check_logprobs,
    check_text_len,
    check_words_len,
)
from octavo.server.openai.messages import text_size


def test_a_text_that_cannot_fit_is_not_tokenized() -> None:
    check_text_len("a" * 10 * MAX_CHARS_PER_TOKEN, 10)
    with pytest.raises(ContextLengthError, match="maximum context length is 10 tokens"):
        check_text_len("a" * (10 * MAX_CHARS_PER_TOKEN + 1), 10)


def test_words_are_measured_together() -> None:
    check_words_len("stop", ["a" * (MAX_WORDS_LEN - 1), "b"])
    with pytest.raises(InvalidParameterError) as caught:
        check_words_len("stop", ["a" * MAX_WORDS_LEN, "b"])
    assert (caught.value.parameter, caught.value.value) == ("stop", MAX_WORDS_LEN + 1)


def test_lists_of_ids_are_multiplied_by_prompts() -> None:
    params = SamplingParams(
        allowed_token_ids=tuple(range(4096)),
        logit_bias=dict.fromkeys(range(4095), 1.0),
        bad_words_token_ids=((1,),),
    )
    most = MAX_LISTED_IDS // 8192
    check_listed_ids(params, most)
    with pytest.raises(InvalidParameterError, match=f"given: {most + 1} x 8192"):
        check_listed_ids(params, most + 1)


@pytest.mark.parametrize(("wanted", "num_each"), [(0, 1), (20, 21), (-1, 50_001)])
def test_logprobs_are_counted_over_the_request(wanted: int, num_each: int) -> None:
    both = SamplingParams(logprobs=wanted, prompt_logprobs=wanted)
    num_prompt, num_new = MAX_PROMPT_LOGPROBS // num_each, MAX_LOGPROBS // num_each
    check_logprobs(both, num_prompt, num_new, 50_000)
    for numbers, name in (
        ((num_prompt + 1, num_new), "prompt_logprobs"),
        ((num_prompt, num_new + 1), "logprobs"),
    ):
        with pytest.raises(InvalidParameterError, match=f"need {num_each} for each") as caught:
            check_logprobs(both, *numbers, 50_000)
        assert caught.value.parameter == name


def test_without_logprobs_nothing_is_counted() -> None:
    check_logprobs(SamplingParams(), 10**9, 10**9, 50_000)


def test_the_size_of_json_is_counted_up_to_a_limit() -> None:
    assert text_size("abc", 100) == 4
    assert text_size({"a": ["bc", None, {"d": "ef"}]}, 100) == 10
    assert text_size(["x" * 1000] * 10**6, 100) > 100
