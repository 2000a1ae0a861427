"""Guesses change nothing but time: tokens, log-probabilities and the bits of the logits, whatever is asked for."""

from typing import Any

import pytest

from octavo.config import SpeculationConfig
from octavo.core.sampling_params import SamplingParams
from octavo.models.model import Model, load_model
from support.backends import make_runner
from support.recorder import serve
from support.tiny_models import tiny_folder

GUESSY = SpeculationConfig(num_speculative_tokens=12, prompt_lookup_min=1)
LOOP = [7, 8, 9, 10, 11, 7, 8, 9, 10, 11, 7, 8, 9]
MODES: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32", "kv_cache_dtype": "float32"},
    "auto": {"dtype": "auto", "kv_cache_dtype": "bfloat16"},
    "auto with int8 cache": {"dtype": "auto", "kv_cache_dtype": "int8"},
}
BASE: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "greedy with logprobs": {"temperature": 0.0, "logprobs": 3, "prompt_logprobs": 2},
    "sampled": {"temperature": 0.3, "logprobs": 2},
    "filters": {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "logprobs": 0},
    "penalties": {
        "temperature": 0.2,
        "repetition_penalty": 1.05,
        "frequency_penalty": 0.02,
        "presence_penalty": 0.02,
        "logprobs": 1,
    },
    "greedy penalties": {"temperature": 0.0, "repetition_penalty": 1.2},
    "few tokens": {"temperature": 1.0, "allowed_token_ids": (7, 8, 9), "logprobs": 1},
    "bias": {"temperature": 0.5, "logit_bias": {7: 5.0, 8: 5.0, 9: -3.0}},
    "bad words": {
        "temperature": 0.5,
        "allowed_token_ids": (7, 8, 9),
        "bad_words_token_ids": ((7, 8), (9, 9, 9), (8, 7, 9)),
    },
    "end tokens": {"temperature": 1.0, "allowed_token_ids": (0, 7, 8), "ignore_eos": False},
    "late end tokens": {
        "temperature": 1.0,
        "allowed_token_ids": (0, 7, 8),
        "ignore_eos": False,
        "min_tokens": 20,
    },
    "stop tokens": {
        "temperature": 1.0,
        "allowed_token_ids": (5, 7, 8, 9),
        "stop_token_ids": (5,),
        "min_tokens": 12,
    },
    "parallel samples": {"n": 3, "temperature": 0.8, "allowed_token_ids": (7, 8), "logprobs": 1},
}


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(tiny_folder("llama"))


@pytest.mark.parametrize("kind", ["native", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_the_same_bit_for_bit(model: Model, name: str, kind: str) -> None:
    params = SamplingParams(**(BASE | CASES[name]))
    runner = make_runner(kind, model, num_blocks=40)
    try:
        plain = serve(runner, [LOOP, LOOP[3:]], params)
        guessed = serve(runner, [LOOP, LOOP[3:]], params, speculation=GUESSY)
    finally:
        runner.close()
    exact = kind == "native"  # the order of summation in numpy goes by the size of the batch
    for one, other in zip(plain, guessed, strict=True):
        assert other.tokens == one.tokens
        if exact:
            assert other.logprobs == one.logprobs
            assert other.bits == one.bits
    assert sum(outcome.num_guessed for outcome in guessed) > 0


@pytest.mark.parametrize("mode", MODES)
def test_in_small_pools_and_budgets(model: Model, mode: str) -> None:
    params = SamplingParams(temperature=0.6, allowed_token_ids=(7, 8, 9), logprobs=1, **BASE)
    runner = make_runner("native", model, num_blocks=40, **MODES[mode])
    prompts = [LOOP, LOOP[1:], LOOP[2:] * 2]
    plain = serve(runner, prompts, params)
    cases: tuple[dict[str, Any], ...] = (
        {"num_blocks": 6},
        {"max_num_batched_tokens": 4, "max_num_seqs": 2},
        {"max_num_batched_tokens": 9},
    )
    for options in cases:
        guessed = serve(runner, prompts, params, speculation=GUESSY, **options)
        assert [o.tokens for o in guessed] == [o.tokens for o in plain]
        assert [o.bits for o in guessed] == [o.bits for o in plain]
        assert [o.logprobs for o in guessed] == [o.logprobs for o in plain]
    runner.close()
