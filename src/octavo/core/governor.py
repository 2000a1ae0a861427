"""How many tokens a step may compute, so that those who decode get their next token in time.

The time of a step is a fixed part, a part for each token, one for each key that a decoding sequence reads, and one
for each pair of a query and a key in prompt chunks. How much each of these costs here is learned from the steps
themselves, while they run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt

from octavo.core.sequence import Sequence
from octavo.core.step import StepPlan

MIN_CHUNK = 16
"""Prompt tokens that a step computes whatever the target: a target too low may not stop prompts for ever."""
FIRST_CHUNK = 64
"""Prompt tokens beside decoding sequences before anything is known of this machine."""
MOST_GROWTH = 2
"""A step has at most this many times the tokens of the largest so far in which somebody decoded: what is learned holds
near what was seen."""
AIM = 0.9
"""Share of the target that is aimed at: half of the steps take longer than they are expected to."""
LEARNING_RATE = 0.1
FIT_ROUNDS = 12

Features = tuple[float, float, float, float]
"""1, tokens, keys read by decoding sequences, pairs of query and key in chunks."""


@dataclass(slots=True)
class _Kind:
    """Running means over steps of about the same number of tokens. What is linear in each holds for the means."""

    features: list[float] = field(default_factory=lambda: [0.0] * 4)
    seconds: float = 0.0
    num_steps: int = 0

    def learn(self, features: Features, seconds: float) -> None:
        self.num_steps += 1
        rate = max(LEARNING_RATE, 1 / self.num_steps)
        self.seconds += rate * (seconds - self.seconds)
        for i, value in enumerate(features):
            self.features[i] += rate * (value - self.features[i])


class Governor:
    """Learns what steps cost, and chooses the budget of each so that it takes no longer than the target."""

    def __init__(self, target_s: float) -> None:
        """`target_s`: most seconds between two tokens of a decoding sequence; above 0."""
        if not target_s > 0:
            raise ValueError(f"target_s must be above 0; given: {target_s}")
        self.target_s = target_s
        self._kinds: dict[int, _Kind] = {}
        self._costs = [0.0] * 4
        self._is_fitted = True
        self._most_tokens = FIRST_CHUNK // MOST_GROWTH
        self._excess = 0.0
        """By which share steps lately took longer than expected, on average; those that were faster count as 0."""

    @property
    def costs_s(self) -> tuple[float, float, float, float]:
        """Seconds of a step, of a token, of a key that is read, of a pair in a chunk."""
        self._fit()
        fixed, token, key, pair = self._costs
        return fixed, token, key, pair

    def predict(self, features: Features) -> float:
        """Seconds that such a step takes, as far as is known; 0 while nothing is."""
        self._fit()
        return sum(cost * value for cost, value in zip(self._costs, features, strict=True))

    def learn(self, plan: StepPlan, seconds: float) -> None:
        """A step took this long."""
        if not plan.seqs:
            return
        features = _features(plan)
        expected = self.predict(features)
        if expected > 0:
            excess = max(0.0, seconds / expected - 1)
            self._excess += LEARNING_RATE * (min(excess, 1.0) - self._excess)
        num_tokens = int(features[1])
        if features[2] > 0:
            self._most_tokens = max(self._most_tokens, num_tokens)
        kind = self._kinds.setdefault(num_tokens.bit_length(), _Kind())
        kind.learn(features, seconds)
        self._is_fitted = False

    def budget(self, running: Iterable[Sequence], limit: int) -> int:
        """Tokens of the next step, at most `limit`. Where nobody decodes there is nobody to be in time for: `limit`."""
        num_decoding = num_keys = 0
        pending: list[Sequence] = []
        for sequence in running:
            if sequence.num_pending == 1:
                num_decoding += 1
                num_keys += len(sequence.token_ids)
            else:
                pending.append(sequence)
        if num_decoding == 0:
            return limit
        decoding = (1.0, float(num_decoding), float(num_keys), 0.0)
        left = self.target_s * AIM / (1 + self._excess) - self.predict(decoding)
        num_tokens = self._chunk_tokens(pending, left)
        most = max(FIRST_CHUNK, MOST_GROWTH * self._most_tokens - num_decoding)
        return min(limit, num_decoding + max(MIN_CHUNK, min(num_tokens, most)))

    def _chunk_tokens(self, pending: list[Sequence], seconds: float) -> int:
        """Prompt tokens that take so many seconds: of these sequences in turn, then of a new one."""
        num_tokens = 0
        for sequence in pending:
            fits = self._chunk_len(sequence.num_computed, seconds)
            if fits < sequence.num_pending:
                return num_tokens + fits
            num_tokens += sequence.num_pending
            seconds -= self._chunk_seconds(sequence.num_computed, sequence.num_pending)
        return num_tokens + self._chunk_len(0, seconds)

    def _chunk_seconds(self, start: int, length: int) -> float:
        return self._costs[1] * length + self._costs[3] * _num_pairs(start, length)

    def _chunk_len(self, start: int, seconds: float) -> int:
        """The longest chunk from position `start` on that takes at most so many seconds."""
        if seconds <= 0:
            return 0
        # pair/2 * length^2 + (token + pair * start) * length = seconds, in the form that stands a pair that costs 0
        linear = self._costs[1] + self._costs[3] * (start + 0.5)
        root = sqrt(linear * linear + 2 * self._costs[3] * seconds)
        return int(2 * seconds / (linear + root)) if linear + root > 0 else 1 << 30

    def _fit(self) -> None:
        """Non-negative least squares over the kinds of steps, of relative errors, from where the last fit ended.

        Coordinate descent (Franc, Hlavac, Navara, "Sequential coordinate-wise algorithm for the non-negative least
        squares problem", 2005). What the steps so far do not tell apart stays as it was.
        """
        if self._is_fitted:
            return
        self._is_fitted = True
        rows = [
            [value / kind.seconds for value in kind.features]
            for kind in self._kinds.values()
            if kind.seconds > 0
        ]
        squares = [sum(row[i] * row[i] for row in rows) for i in range(4)]
        for _ in range(FIT_ROUNDS):
            for i, square in enumerate(squares):
                if square > 0:
                    errors = (1 - sum(map(_product, self._costs, row)) for row in rows)
                    slope = sum(row[i] * error for row, error in zip(rows, errors, strict=True))
                    self._costs[i] = max(0.0, self._costs[i] + slope / square)


def _product(a: float, b: float) -> float:
    return a * b


def _num_pairs(start: int, length: int) -> float:
    """Queries at positions start .. start + length - 1, each with all keys up to itself."""
    return length * (start + (length + 1) / 2)


def _features(plan: StepPlan) -> Features:
    num_tokens = num_keys = 0
    num_pairs = 0.0
    for step in plan.seqs:
        length = len(step.token_ids)
        num_tokens += length
        if length - step.num_drafts == 1:
            num_keys += step.start + length
        else:
            num_pairs += _num_pairs(step.start, length)
    return 1.0, float(num_tokens), float(num_keys), num_pairs
