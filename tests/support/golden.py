"""Golden outputs of the two default models, and how results are held against them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
SMOLLM2 = "smollm2-135m-instruct-q4_1"
GEMMA = "gemma-3-270m-q4_k_m"

TIE_GAP = 1e-3
"""A step whose two best tokens are closer than this may go either way."""
LOGPROB_TOLERANCE = 2e-3


@dataclass(frozen=True)
class GoldenCase:
    """A prompt, its greedy continuation, and the five best log-probabilities of every step."""

    kind: str
    prompt_token_ids: list[int]
    greedy_token_ids: list[int]
    top5_logprobs: list[list[tuple[int, float]]]

    @property
    def first_tie(self) -> int:
        """The first step that may go either way, or the number of steps."""
        gaps = [top[0][1] - top[1][1] for top in self.top5_logprobs]
        return next((i for i, gap in enumerate(gaps) if gap < TIE_GAP), len(gaps))

    def check_logits(self, logits: NDArray[Any]) -> None:
        """Hold logits, [steps, V], of the golden continuation itself against it."""
        values = logits.astype(np.float64)
        values -= values.max(axis=1, keepdims=True)
        logprobs = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
        for step, top in enumerate(self.top5_logprobs):
            for token_id, expected in top:
                difference = abs(logprobs[step, token_id] - expected)
                assert difference < LOGPROB_TOLERANCE, (
                    f"step {step}, token {token_id}: {difference}"
                )
            if top[0][1] - top[1][1] >= TIE_GAP:
                assert logits[step].argmax() == self.greedy_token_ids[step], f"step {step}"

    def check_tokens(self, token_ids: list[int]) -> None:
        """Hold freely generated tokens against the golden ones: equal up to the first tie."""
        steps = min(self.first_tie, len(token_ids))
        assert token_ids[:steps] == self.greedy_token_ids[:steps]


def golden_cases(name: str) -> list[GoldenCase]:
    """The cases of a golden file."""
    cases = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    return [
        GoldenCase(
            case["kind"], case["prompt_token_ids"], case["greedy_token_ids"], case["top5_logprobs"]
        )
        for case in cases
    ]
