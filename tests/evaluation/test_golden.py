"""The measure measures: exact agreement with itself, and every kind of difference is seen."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.backends.reference.runner import ReferenceRunner
from octavo.core.step import StepPlan, StepResult
from octavo.errors import CheckpointError, ConfigError
from octavo.evaluation.forced import forced_logits, greedy_tokens, num_blocks_for
from octavo.evaluation.golden import (
    Golden,
    GoldenCase,
    check_vocabulary,
    is_same_greedy,
    measure,
    read_golden,
    tokenization_differences,
)
from octavo.models.model import load_model
from octavo.text.chat_template import load_chat_template
from octavo.text.tokenizer import load_tokenizer
from support.text_model import text_model_folder

LENGTHS = ((5, 8), (17, 6), (300, 4))
"""Tokens of prompt and continuation; the last crosses a chunk."""


@pytest.fixture(scope="module")
def runner() -> ReferenceRunner:
    model = load_model(text_model_folder())
    num_blocks = num_blocks_for([sum(pair) for pair in LENGTHS], 16)
    return ReferenceRunner(model.spec, model.weights, num_blocks=num_blocks, block_size=16)


@pytest.fixture(scope="module")
def golden(runner: ReferenceRunner) -> Golden:
    """What the runner itself makes of three prompts."""
    random = np.random.default_rng(1)
    prompts = [random.integers(4, 260, length).tolist() for length, _ in LENGTHS]
    answers = greedy_tokens(runner, prompts, [length for _, length in LENGTHS])
    cases = [case_of(runner, *pair) for pair in zip(prompts, answers, strict=True)]
    return Golden("tiny", (), tuple(cases))


def case_of(runner: ReferenceRunner, prompt: list[int], answer: list[int]) -> GoldenCase:
    logits = forced_logits(runner, prompt, answer).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    best = np.argsort(-logprobs, axis=1)[:, :5]
    top5 = tuple(
        tuple((int(i), float(row[i])) for i in ids) for row, ids in zip(logprobs, best, strict=True)
    )
    return GoldenCase(tuple(prompt), tuple(answer), top5, None, (), None)


class Altered:
    """A runner whose logits are changed."""

    def __init__(
        self,
        runner: ReferenceRunner,
        change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    ) -> None:
        self._runner = runner
        self._change = change
        self.num_blocks, self.block_size = runner.num_blocks, runner.block_size

    def run(self, plan: StepPlan) -> StepResult:
        return self._runner.run(plan)

    def forward(self, plan: StepPlan) -> NDArray[np.float32]:
        return self._change(self._runner.forward(plan))

    def close(self) -> None:
        """Nothing of its own."""


def test_a_file_of_another_model_is_refused(golden: Golden) -> None:
    largest = max(max(c.prompt_token_ids + c.greedy_token_ids) for c in golden.cases)
    check_vocabulary(golden, largest + 1)
    with pytest.raises(ConfigError, match=f"token id {largest}, .* ends at {largest - 1}"):
        check_vocabulary(golden, largest)


def test_a_runner_agrees_with_itself(golden: Golden, runner: ReferenceRunner) -> None:
    stages: list[str] = []
    agreement = measure(golden, runner, runner, lambda stage, _: stages.append(stage))
    assert agreement.greedy_identical_cases == 3
    assert agreement.max_logprob_diff < 1e-5
    assert agreement.mean_kl == 0
    assert agreement.top1_agreement == 1
    assert agreement.num_steps == sum(length for _, length in LENGTHS)
    assert set(stages) == {"decoding", "teacher forcing"}


def test_forced_logits_do_not_depend_on_chunks(golden: Golden, runner: ReferenceRunner) -> None:
    """The logits of a continuation are those of one pass over all tokens."""
    case = golden.cases[2]
    whole = forced_logits(
        runner, [case.prompt_token_ids[0]], [*case.prompt_token_ids[1:], *case.greedy_token_ids]
    )
    parts = forced_logits(runner, case.prompt_token_ids, case.greedy_token_ids)
    np.testing.assert_allclose(parts, whole[-len(parts) :], atol=1e-5)


def test_kl_and_top1_are_against_float32(golden: Golden, runner: ReferenceRunner) -> None:
    shifted = Altered(runner, lambda logits: logits + np.float32(3))  # the same distribution
    agreement = measure(golden, shifted, runner)
    assert agreement.mean_kl == pytest.approx(0, abs=1e-9)
    assert agreement.top1_agreement == 1

    flat = Altered(runner, lambda logits: logits * np.float32(0))
    agreement = measure(golden, flat, runner)
    entropies = []
    for case in golden.cases:
        logits = forced_logits(runner, case.prompt_token_ids, case.greedy_token_ids)
        p = np.exp(logits.astype(np.float64))
        p /= p.sum(axis=1, keepdims=True)
        entropies += (p * np.log(p * p.shape[1])).sum(axis=1).tolist()
    assert agreement.mean_kl == pytest.approx(np.mean(entropies))
    assert agreement.max_logprob_diff > 0.1

    turned = Altered(runner, lambda logits: -logits)
    assert measure(golden, turned, runner).top1_agreement == 0


def test_another_continuation_is_not_identical(golden: Golden, runner: ReferenceRunner) -> None:
    first = golden.cases[0]
    other = replace(
        first, greedy_token_ids=(first.greedy_token_ids[0] ^ 1, *first.greedy_token_ids[1:])
    )
    agreement = measure(replace(golden, cases=(other, *golden.cases[1:])), runner, runner)
    assert agreement.greedy_identical_cases == 2


def tie_case(gap: float) -> GoldenCase:
    top5 = (
        ((7, -0.5), (8, -2.0)),
        ((7, -0.5), (8, -0.5 - gap)),
        ((7, -0.5), (8, -2.0)),
    )
    return GoldenCase((1,), (7, 7, 7), top5, None, (), None)


@pytest.mark.parametrize(
    ("gap", "token_ids", "same"),
    [
        (1.0, [7, 7, 7], True),
        (1.0, [7, 8, 7], False),
        (1.0, [7, 7, 8], False),
        (5e-4, [7, 8, 1], True),  # the tie goes the other way, and the text parts
        (5e-4, [7, 7, 1], True),
        (5e-4, [7, 9, 7], False),  # not one of the two
        (5e-4, [8, 7, 7], False),  # before the tie
    ],
)
def test_near_ties_may_go_either_way(gap: float, token_ids: list[int], same: bool) -> None:
    assert is_same_greedy(tie_case(gap), token_ids) is same


def test_tokenization_differences() -> None:
    folder = text_model_folder()
    tokenizer = load_tokenizer(folder)
    template = load_chat_template(folder, None, tokenizer)
    assert template is not None
    messages = ({"role": "user", "content": "Hi"},)
    rendered = template.render([*messages])
    ids = tuple(tokenizer.encode("Hi there"))
    chat = GoldenCase(
        tuple(tokenizer.encode(rendered, add_special_tokens=False)),
        (5,),
        ((),),
        None,
        messages,
        rendered,
    )
    raw = GoldenCase(ids, (5,), ((),), "Hi there", (), None)
    golden = Golden("tiny", (("Hi there", ids),), (chat, raw))
    assert tokenization_differences(golden, tokenizer, template) == []
    assert tokenization_differences(golden, tokenizer, None) == [rendered]
    for wrong in (
        replace(golden, tokenization=(("Hi there", ids[1:]),)),
        replace(golden, cases=(chat, replace(raw, prompt_token_ids=(1,)))),
    ):
        assert tokenization_differences(wrong, tokenizer, template) == ["Hi there"]
    other = replace(chat, messages=({"role": "user", "content": "Ho"},))
    assert tokenization_differences(replace(golden, cases=(other,)), tokenizer, template) == [
        rendered
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model": "m", "tokenization": [{}], "cases": []}']
)
def test_what_is_not_a_golden_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"golden\.json"):
        read_golden(path)


def test_the_golden_files_are_read() -> None:
    folder = Path(__file__).parents[1] / "data" / "golden"
    for path in folder.glob("*.json"):
        golden = read_golden(path)
        assert len(golden.cases) == len(json.loads(path.read_text())["cases"])
        assert all(len(c.top5) == len(c.greedy_token_ids) for c in golden.cases)
