"""Golden outputs of SmolLM2 and Gemma 3, made with transformers in float32 on the dequantized weights."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Sampling
from octavo.models.model import load_model
from support.backends import (
    BACKENDS,
    ForwardRunner,
    make_runner,
    plan_of,
    prompt_logits,
    scattered_table,
    seq_step,
)
from support.golden import GEMMA, SMOLLM2, GoldenCase, golden_cases

NUM_BLOCKS = 90
SHORT = {SMOLLM2: (0, 7, 11, 14), GEMMA: (0, 7, 11)}
"""Cases of the short form: raw text, unusual characters, a chat, and one of 513 prompt tokens."""

pytestmark = pytest.mark.model


@pytest.fixture(
    scope="module", params=[(b, n) for b in BACKENDS for n in (SMOLLM2, GEMMA)], ids=str
)
def runner_and_name(
    request: pytest.FixtureRequest, smollm2_path: Path, gemma_path: Path
) -> Iterator[tuple[ForwardRunner, str]]:
    backend, name = request.param
    model = load_model(smollm2_path if name == SMOLLM2 else gemma_path)
    runner = make_runner(backend, model, num_blocks=NUM_BLOCKS)
    yield runner, name
    runner.close()


def test_short_form(runner_and_name: tuple[ForwardRunner, str]) -> None:
    runner, name = runner_and_name
    cases = golden_cases(name)
    for i in SHORT[name]:
        check_teacher_forced(runner, cases[i])
    cases[0].check_tokens(generate(runner, cases[0].prompt_token_ids, 12))


@pytest.mark.long
def test_all_cases_teacher_forced(runner_and_name: tuple[ForwardRunner, str]) -> None:
    runner, name = runner_and_name
    for case in golden_cases(name):
        check_teacher_forced(runner, case)


@pytest.mark.long
def test_all_cases_generated(runner_and_name: tuple[ForwardRunner, str]) -> None:
    runner, name = runner_and_name
    for case in golden_cases(name):
        case.check_tokens(generate(runner, case.prompt_token_ids, len(case.greedy_token_ids)))


def check_teacher_forced(runner: ForwardRunner, case: GoldenCase) -> None:
    token_ids = case.prompt_token_ids + case.greedy_token_ids[:-1]
    logits = prompt_logits(runner, token_ids, chunk=512)
    case.check_logits(logits[len(case.prompt_token_ids) - 1 :])


def generate(runner: ForwardRunner, prompt: list[int], num_tokens: int) -> list[int]:
    """Greedy tokens, one step at a time."""
    table = scattered_table(len(prompt) + num_tokens, runner, seed=1)
    params = SamplingParams(temperature=0.0)
    token_ids = array("i", prompt)
    new, start = list(prompt), 0
    for _ in range(num_tokens):
        sampling = Sampling(0, params, 0, len(prompt))
        result = runner.run(plan_of(seq_step(new, table, start=start, sampling=(sampling,))))
        start += len(new)
        new = [result.tokens[0].token_id]
        token_ids.append(new[0])
    return token_ids[len(prompt) :].tolist()
