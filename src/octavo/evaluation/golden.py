"""Golden files: what another implementation made of the same weights, and how far ours is from it.

A golden file is JSON: `tokenization` holds texts with their token ids; each of `cases` a prompt (`text`, or
`messages` with what the chat template `rendered`, or token ids alone), the greedy continuation and the five
highest log-probabilities at each of its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.json_object import read_json_object
from octavo.errors import CheckpointError, ConfigError
from octavo.evaluation.forced import LogitsRunner, forced_logits, greedy_tokens
from octavo.progress import Progress, silent
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

TIE_GAP = 1e-3
"""Where the golden file's best two are closer than this (nat), either may be taken."""


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """One prompt and its greedy continuation."""

    prompt_token_ids: tuple[int, ...]
    greedy_token_ids: tuple[int, ...]
    top5: tuple[tuple[tuple[int, float], ...], ...]
    """For each step (token id, log-probability), best first."""
    text: str | None
    messages: tuple[Mapping[str, Any], ...]
    rendered: str | None


@dataclass(frozen=True, slots=True)
class Golden:
    """The content of a golden file."""

    model: str
    tokenization: tuple[tuple[str, tuple[int, ...]], ...]
    cases: tuple[GoldenCase, ...]

    @property
    def sequence_lengths(self) -> list[int]:
        """Tokens of each case, prompt and continuation."""
        return [len(case.prompt_token_ids) + len(case.greedy_token_ids) for case in self.cases]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near the runner is to the golden file and to our own float32 mode."""

    greedy_identical_cases: int
    """Cases whose own greedy tokens are the golden ones, up to the first near tie."""
    max_logprob_diff: float
    """Largest difference from a golden log-probability, nat, teacher-forced."""
    mean_kl: float
    """Mean over all steps of KL(float32 || this mode) on the whole vocabulary, nat, teacher-forced."""
    top1_agreement: float
    """Share of steps where float32 and this mode have the same most likely token."""
    num_steps: int


def read_golden(path: Path) -> Golden:
    """Read a golden file. Raises CheckpointError if it is not one."""
    data = read_json_object(path)
    try:
        return Golden(
            model=data["model"],
            tokenization=tuple((e["text"], tuple(e["ids"])) for e in data["tokenization"]),
            cases=tuple(map(_read_case, data["cases"])),
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: not a golden file: {type(error).__name__} {error}"
        ) from error


def tokenization_differences(
    golden: Golden, tokenizer: Tokenizer, template: ChatTemplate | None
) -> list[str]:
    """Texts that do not become the golden token ids, and chats that are not rendered as there."""
    texts = [*golden.tokenization]
    texts += [(case.text, case.prompt_token_ids) for case in golden.cases if case.text is not None]
    different = [text for text, ids in texts if tokenizer.encode(text) != list(ids)]
    for case in golden.cases:
        if case.rendered is None:
            continue
        rendered = template.render([*case.messages]) if template else None
        ids = tokenizer.encode(case.rendered, add_special_tokens=False)
        if rendered != case.rendered or ids != list(case.prompt_token_ids):
            different.append(case.rendered)
    return different


def check_vocabulary(golden: Golden, vocab_size: int) -> None:
    """Raise ConfigError if the file is of a model with more tokens than this one."""
    largest = max(max((*c.prompt_token_ids, *c.greedy_token_ids)) for c in golden.cases)
    if largest >= vocab_size:
        raise ConfigError(
            f"the golden file is of another model ({golden.model}): it has token id {largest}, "
            f"the model's vocabulary ends at {vocab_size - 1}; name its model with --model"
        )


def measure(
    golden: Golden,
    runner: LogitsRunner,
    float32: LogitsRunner,
    progress: Progress = silent,
) -> Agreement:
    """Decode greedily, then force the golden continuations through `runner` and our own `float32` mode.

    Both need a pool that holds all cases at once (`forced.num_blocks_for`); they may be the same runner.
    """
    progress("decoding", 0.0)
    decoded = greedy_tokens(
        runner,
        [case.prompt_token_ids for case in golden.cases],
        [len(case.greedy_token_ids) for case in golden.cases],
    )
    progress("decoding", 1.0)
    differences: list[float] = []
    divergences: list[NDArray[np.float64]] = []
    same_top: list[NDArray[np.bool_]] = []
    for i, case in enumerate(golden.cases):
        forced = _log_softmax(forced_logits(runner, case.prompt_token_ids, case.greedy_token_ids))
        exact = forced
        if float32 is not runner:
            logits = forced_logits(float32, case.prompt_token_ids, case.greedy_token_ids)
            exact = _log_softmax(logits)
        differences.append(_largest_difference(forced, case))
        divergences.append(np.sum(np.exp(exact) * (exact - forced), axis=1))
        same_top.append(exact.argmax(axis=1) == forced.argmax(axis=1))
        progress("teacher forcing", (i + 1) / len(golden.cases))
    return Agreement(
        greedy_identical_cases=sum(map(is_same_greedy, golden.cases, decoded)),
        max_logprob_diff=max(differences),
        mean_kl=float(np.concatenate(divergences).mean()),
        top1_agreement=float(np.concatenate(same_top).mean()),
        num_steps=sum(map(len, divergences)),
    )


def is_same_greedy(case: GoldenCase, token_ids: Sequence[int]) -> bool:
    """Whether the ids are the golden ones, up to the first step at which the golden best two nearly tie."""
    for ours, theirs, top in zip(token_ids, case.greedy_token_ids, case.top5, strict=True):
        nearly_tied = top[0][1] - top[1][1] < TIE_GAP
        if ours != theirs:
            return nearly_tied and ours == top[1][0]
        if nearly_tied:
            return True  # from here on the texts may part
    return True


def _read_case(case: Mapping[str, Any]) -> GoldenCase:
    return GoldenCase(
        prompt_token_ids=tuple(case["prompt_token_ids"]),
        greedy_token_ids=tuple(case["greedy_token_ids"]),
        top5=tuple(tuple((i, p) for i, p in step) for step in case["top5_logprobs"]),
        text=case.get("text"),
        messages=tuple(case.get("messages", ())),
        rendered=case.get("rendered"),
    )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def _largest_difference(logprobs: NDArray[np.float64], case: GoldenCase) -> float:
    ids = np.array([[i for i, _ in step] for step in case.top5])
    golden = np.array([[p for _, p in step] for step in case.top5])
    ours = np.take_along_axis(logprobs, ids, axis=1)
    return float(np.abs(ours - golden).max())
