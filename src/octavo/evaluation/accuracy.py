"""How far a mode (how weights and cache are held) is from float32, position by position of given texts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ConfigError
from octavo.evaluation.forced import LogitsRunner, forced_chunks
from octavo.evaluation.golden import Golden

WINDOW_TOKENS = 1024
"""A text is read in windows of this many tokens; each begins anew."""
CONTEXT_TOKENS = 16
"""The first tokens of a window: read, not predicted."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens that are read in one go. `context` has at least one; each of `predicted` is compared."""

    context: tuple[int, ...]
    predicted: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.context) + len(self.predicted)


@dataclass(frozen=True, slots=True)
class Divergence:
    """What lies between a mode and float32 on a text. Divergences in nat, KL(float32 || mode), whole vocabulary."""

    num_positions: int
    mean_kl: float
    max_kl: float
    top1_agreement: float
    """Share of positions where both have the same most likely token."""
    perplexity: float
    """exp of the mean -log(probability) of the text's own tokens, in this mode."""
    float32_perplexity: float

    @property
    def perplexity_change(self) -> float:
        """Relative: 0.01 is one percent more than float32's."""
        return self.perplexity / self.float32_perplexity - 1.0


def golden_stretches(golden: Golden) -> list[Stretch]:
    """The golden continuations, each after its prompt."""
    return [Stretch(case.prompt_token_ids, case.greedy_token_ids) for case in golden.cases]


def text_stretches(
    token_ids: Sequence[int], num_tokens: int, *, beginning: Sequence[int], window: int
) -> list[Stretch]:
    """Windows of a text in which `num_tokens` of its tokens are predicted.

    `beginning` (what the model expects before any text) opens each window and counts for its length.
    Raises ConfigError if the text is too short.
    """
    step = window - len(beginning)
    stretches: list[Stretch] = []
    missing = num_tokens
    for start in range(0, len(token_ids), step):
        part = token_ids[start : start + step]
        predicted = part[CONTEXT_TOKENS:][:missing]
        if predicted:
            stretches.append(Stretch((*beginning, *part[:CONTEXT_TOKENS]), tuple(predicted)))
            missing -= len(predicted)
        if missing == 0:
            return stretches
    raise ConfigError(
        f"the text has {len(token_ids)} tokens, enough to predict {num_tokens - missing} in windows "
        f"of {window}; given: {num_tokens}"
    )


def measure(
    stretches: Sequence[Stretch],
    runner: LogitsRunner,
    exact: LogitsRunner,
    progress: Callable[[float], None] = lambda _fraction: None,
) -> Divergence:
    """Force the stretches through both runners; `exact` is our float32 mode and may be `runner` itself.

    Both need a pool for the longest stretch. A chunk of rows at a time is in memory. `progress` is told
    the fraction that is done.
    """
    total = DivergenceSum()
    num_positions = sum(len(stretch.predicted) for stretch in stretches)
    for stretch in stretches:
        next_ids = iter(stretch.predicted)
        for theirs, ours in _chunk_pairs(stretch, runner, exact):
            for float32_logits, logits in zip(theirs, ours, strict=True):
                total.add(float32_logits, logits, next(next_ids))
            progress(total.num_positions / num_positions)
    return total.result()


class DivergenceSum:
    """Takes one position after another; sums are in double."""

    def __init__(self) -> None:
        self.num_positions = 0
        self._kl = 0.0
        self._max_kl = 0.0
        self._num_same_top = 0
        self._loss = 0.0
        self._float32_loss = 0.0

    def add(
        self, float32_logits: NDArray[np.float32], logits: NDArray[np.float32], next_id: int
    ) -> None:
        """Both modes' logits of a position, [V], and the token that follows in the text."""
        exact, ours = _log_softmax(float32_logits), _log_softmax(logits)
        kl = float(
            (np.exp(exact) * (exact - ours)).sum()
        )  # pairwise sums; BLAS would start threads
        self.num_positions += 1
        self._kl += kl
        self._max_kl = float(np.maximum(self._max_kl, kl))  # a NaN stays one
        self._num_same_top += int(float32_logits.argmax() == logits.argmax())
        self._loss -= float(ours[next_id])
        self._float32_loss -= float(exact[next_id])

    def result(self) -> Divergence:
        """The means. At least one position must have been added."""
        n = self.num_positions
        return Divergence(
            num_positions=n,
            mean_kl=self._kl / n,
            max_kl=self._max_kl,
            top1_agreement=self._num_same_top / n,
            perplexity=float(np.exp(self._loss / n)),
            float32_perplexity=float(np.exp(self._float32_loss / n)),
        )


def _chunk_pairs(
    stretch: Stretch, runner: LogitsRunner, exact: LogitsRunner
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    theirs = forced_chunks(exact, stretch.context, stretch.predicted)
    if runner is exact:
        return ((logits, logits) for logits in theirs)
    return zip(theirs, forced_chunks(runner, stretch.context, stretch.predicted), strict=True)


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result
