"""The native sampler against the reference, on one model and one plan: the same tokens and log-probabilities."""

from array import array
from collections.abc import Iterator

import numpy as np
import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Sampling, StepResult
from octavo.models.model import load_model
from support.backends import ForwardRunner, make_runner, plan_of, scattered_table, seq_step
from support.tiny_models import prompt, tiny_folder

PROMPT = prompt(60)
V = 256


@pytest.fixture(scope="module")
def runners() -> Iterator[tuple[ForwardRunner, ForwardRunner]]:
    model = load_model(tiny_folder("llama"))
    assert model.spec.vocab_size == V
    pair = (
        make_runner("native", model, num_blocks=8),
        make_runner("reference", model, num_blocks=8),
    )
    yield pair
    for runner in pair:
        runner.close()


def draw(
    runner: ForwardRunner, params: SamplingParams, seeds: range, **fields: object
) -> StepResult:
    sampling = tuple(
        Sampling(i, params, seed, 40, **fields)  # type: ignore[arg-type]
        for i, seed in enumerate(seeds)
    )
    table = scattered_table(len(PROMPT), runner)
    return runner.run(plan_of(seq_step(PROMPT, table, sampling=sampling)))


CASES = {
    "greedy": SamplingParams(temperature=0.0),
    "plain": SamplingParams(temperature=1.0),
    "cold": SamplingParams(temperature=0.02),
    "hot": SamplingParams(temperature=100.0),
    "top_k": SamplingParams(temperature=1.0, top_k=3),
    "top_k beyond the vocabulary": SamplingParams(temperature=1.0, top_k=2**31),
    "top_p": SamplingParams(temperature=1.0, top_p=0.4),
    "tiny top_p": SamplingParams(temperature=1.0, top_p=1e-8),
    "min_p": SamplingParams(temperature=1.0, min_p=0.3),
    "min_p of 1": SamplingParams(temperature=1.0, min_p=1.0),
    "all filters": SamplingParams(temperature=0.8, min_p=0.01, top_k=50, top_p=0.7),
    "penalties": SamplingParams(
        temperature=0.7, repetition_penalty=1.5, frequency_penalty=0.5, presence_penalty=0.9
    ),
    "greedy penalties": SamplingParams(temperature=0.0, repetition_penalty=3.0),
    "bias": SamplingParams(temperature=0.0, logit_bias={17: 100.0, 18: -100.0}),
    "allowed": SamplingParams(temperature=1.0, allowed_token_ids=(5, 9, 200)),
    "bad words": SamplingParams(
        temperature=0.0,
        allowed_token_ids=(5, 9, 200),
        bad_words_token_ids=((9,), (PROMPT[-2], PROMPT[-1], 200), (PROMPT[-1] ^ 1, 5)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_equal_the_reference(
    runners: tuple[ForwardRunner, ForwardRunner], name: str
) -> None:
    seeds = range(1) if CASES[name].is_greedy else range(40)
    native, reference = (draw(runner, CASES[name], seeds) for runner in runners)
    assert [t.token_id for t in native.tokens] == [t.token_id for t in reference.tokens]
    assert [t.error for t in native.tokens] == [None] * len(seeds)


def test_suppressed_tokens_are_never_drawn(runners: tuple[ForwardRunner, ForwardRunner]) -> None:
    params = SamplingParams(temperature=1.0, allowed_token_ids=(5, 9), min_tokens=30, max_tokens=40)
    for runner in runners:
        result = draw(runner, params, range(10), suppressed_token_ids=(9,))
        assert {t.token_id for t in result.tokens} == {5}


def test_nothing_left_is_an_error_of_that_row_only(
    runners: tuple[ForwardRunner, ForwardRunner],
) -> None:
    params = SamplingParams(temperature=1.0, allowed_token_ids=(5,), min_tokens=1)
    for runner in runners:
        table = scattered_table(len(PROMPT), runner)
        good = Sampling(0, params, 0, 60)
        bad = Sampling(1, params, 0, 60, suppressed_token_ids=(5,))
        result = runner.run(plan_of(seq_step(PROMPT, table, sampling=(good, bad, good))))
        assert [t.error is None for t in result.tokens] == [True, False, True]
        assert "no token" in (result.tokens[1].error or "")


@pytest.mark.parametrize("count", [0, 1, 5, -1])
def test_logprobs_equal_the_reference(
    runners: tuple[ForwardRunner, ForwardRunner], count: int
) -> None:
    params = SamplingParams(temperature=1.0, logprobs=count, prompt_logprobs=count)
    results = []
    for runner in runners:
        table = scattered_table(len(PROMPT), runner)
        step = seq_step(
            PROMPT,
            table,
            sampling=(Sampling(0, params, 7, 60),),
            num_prompt_logprobs=count,
            prompt_targets=array("i", PROMPT[1:]),
        )
        result = runner.run(plan_of(step))
        first = result.tokens[0].logprobs
        assert first is not None
        results.append([*result.prompt_logprobs[0], first])
    assert len(results[0]) == len(PROMPT)
    for native, reference in zip(*results, strict=True):
        assert (native.token_id, native.rank) == (reference.token_id, reference.rank)
        assert native.logprob == pytest.approx(reference.logprob, abs=1e-4)
        assert len(native.top) == (V if count == -1 else count)
        values = [p for _, p in native.top]
        assert values == sorted(values, reverse=True)
        # By position the values agree; ids may change places where the values are all but equal.
        np.testing.assert_allclose(values, [p for _, p in reference.top], atol=1e-4)
        by_id = dict(reference.top)
        for token_id, value in native.top:
            assert by_id.get(token_id, values[-1]) == pytest.approx(value, abs=1e-4)
