"""Divergence and perplexity are what their definitions say; windows cover a text; bounds are kept or missed."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.backends.reference.runner import ReferenceRunner
from octavo.config import KV_CACHE_DTYPES
from octavo.core.step import StepPlan, StepResult
from octavo.errors import ConfigError
from octavo.evaluation.accuracy import (
    CONTEXT_TOKENS,
    DivergenceSum,
    Stretch,
    golden_stretches,
    measure,
    text_stretches,
)
from octavo.evaluation.accuracy_bounds import (
    CACHE_BOUNDS,
    Mode,
    bound_of,
    is_within,
    limit_of,
    with_baselines,
)
from octavo.evaluation.forced import CHUNK_TOKENS, forced_chunks, forced_logits, num_blocks_for
from octavo.evaluation.golden import Golden, GoldenCase
from octavo.models.model import load_model
from support.text_model import text_model_folder

Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@pytest.fixture(scope="module")
def runner() -> ReferenceRunner:
    model = load_model(text_model_folder())
    num_blocks = num_blocks_for([400], 16)
    return ReferenceRunner(model.spec, model.weights, num_blocks=num_blocks, block_size=16)


@pytest.fixture(scope="module")
def stretches() -> list[Stretch]:
    random = np.random.default_rng(3)
    lengths = ((1, 9), (20, 1), (17, 300))  # the last crosses a chunk
    return [
        Stretch(tuple(random.integers(4, 260, a)), tuple(random.integers(4, 260, b)))
        for a, b in lengths
    ]


class Altered:
    """A runner whose logits are changed."""

    def __init__(self, runner: ReferenceRunner, change: Change) -> None:
        self._runner = runner
        self._change = change
        self.num_blocks, self.block_size = runner.num_blocks, runner.block_size

    def run(self, plan: StepPlan) -> StepResult:
        return self._runner.run(plan)

    def forward(self, plan: StepPlan) -> NDArray[np.float32]:
        return self._change(self._runner.forward(plan))

    def close(self) -> None:
        """Nothing of its own."""


def sharpened(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Another distribution, with some other most likely tokens: a function of the logits alone."""
    changed: NDArray[np.float32] = logits * np.float32(1.3) + np.sin(logits * np.float32(50.0))
    return changed


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    exps = np.exp(logits.astype(np.float64))  # tiny logits: no maximum to take away
    result: NDArray[np.float64] = exps / exps.sum(axis=1, keepdims=True)
    return result


def test_divergence_is_its_definition(runner: ReferenceRunner, stretches: list[Stretch]) -> None:
    fractions: list[float] = []
    found = measure(stretches, Altered(runner, sharpened), runner, fractions.append)

    logits = np.concatenate([forced_logits(runner, s.context, s.predicted) for s in stretches])
    next_ids = np.concatenate([s.predicted for s in stretches])
    p, q = probabilities(logits), probabilities(sharpened(logits))
    divergences = (p * np.log(p / q)).sum(axis=1)
    rows = np.arange(len(next_ids))
    assert found.num_positions == len(next_ids) == 310
    assert found.mean_kl == pytest.approx(divergences.mean(), rel=1e-12)
    assert found.max_kl == pytest.approx(divergences.max(), rel=1e-12)
    assert found.top1_agreement == (p.argmax(axis=1) == q.argmax(axis=1)).mean()
    assert 0 < found.top1_agreement < 1
    perplexity = np.prod(q[rows, next_ids] ** (-1 / len(rows)))
    float32_perplexity = np.prod(p[rows, next_ids] ** (-1 / len(rows)))
    assert found.perplexity == pytest.approx(perplexity, rel=1e-12)
    assert found.float32_perplexity == pytest.approx(float32_perplexity, rel=1e-12)
    assert found.perplexity_change == pytest.approx(perplexity / float32_perplexity - 1, rel=1e-9)
    assert fractions == sorted(fractions) and fractions[-1] == 1.0


def test_float32_against_itself(runner: ReferenceRunner, stretches: list[Stretch]) -> None:
    found = measure(stretches, runner, runner)
    assert found.mean_kl == found.max_kl == found.perplexity_change == 0
    assert found.top1_agreement == 1
    shifted = measure(stretches, Altered(runner, lambda x: x + np.float32(3)), runner)
    assert shifted.mean_kl == pytest.approx(0, abs=1e-9)  # the same distribution


def test_a_small_divergence_is_not_lost_in_a_large_vocabulary() -> None:
    """Gemma's vocabulary, one token of it moved: KL is known in closed form."""
    logits = np.zeros(262_144, np.float32)
    moved = logits.copy()
    moved[5] = 1.0
    total = DivergenceSum()
    total.add(logits, moved, 5)
    n = logits.size
    wanted = np.log((n - 1 + np.e) / n) - 1.0 / n
    assert wanted < 3e-6
    assert total.result().mean_kl == pytest.approx(wanted, rel=1e-8)


def test_what_is_no_number_misses_every_bound() -> None:
    total = DivergenceSum()
    for bad in (1.0, np.nan, 1.0):
        total.add(np.zeros(4, np.float32), np.array([0, bad, 0, 0], np.float32), 0)
    assert np.isnan(total.result().max_kl)
    assert not is_within(total.result(), 1000.0)
    assert not is_within(total.result(), None)


def test_chunks_bound_the_memory(runner: ReferenceRunner, stretches: list[Stretch]) -> None:
    chunks = list(forced_chunks(runner, stretches[2].context, stretches[2].predicted))
    assert [len(chunk) for chunk in chunks] == [CHUNK_TOKENS, 300 - CHUNK_TOKENS]


@pytest.mark.parametrize("num_tokens", [1, 83, 84, 85, 250])
def test_windows_cover_a_text(num_tokens: int) -> None:
    text = list(range(1000, 1330))
    stretches = text_stretches(text, num_tokens, beginning=[7], window=100)
    assert sum(len(stretch.predicted) for stretch in stretches) == num_tokens
    for i, stretch in enumerate(stretches):
        assert stretch.context[0] == 7
        assert len(stretch) == 100 or i == len(stretches) - 1
        window = [*stretch.context[1:], *stretch.predicted]
        assert window == text[99 * i : 99 * i + len(window)]
        assert len(stretch.context) == 1 + CONTEXT_TOKENS


def test_a_text_that_is_too_short_is_named() -> None:
    text = list(range(330))
    most = 330 - 4 * CONTEXT_TOKENS
    text_stretches(text, most, beginning=[], window=100)
    with pytest.raises(ConfigError, match=f"330 tokens, enough to predict {most} .*{most + 1}"):
        text_stretches(text, most + 1, beginning=[], window=100)


def test_golden_continuations_follow_their_prompts() -> None:
    case = GoldenCase((1, 2, 3), (4, 5), ((), ()), None, (), None)
    assert golden_stretches(Golden("m", (), (case,))) == [Stretch((1, 2, 3), (4, 5))]


def test_bounds() -> None:
    assert bound_of(Mode("auto", "bfloat16")) == bound_of(Mode("float32", "bfloat16"))
    assert bound_of(Mode("int4", "bfloat16")) is None
    assert set(KV_CACHE_DTYPES) - {"auto"} >= set(CACHE_BOUNDS)
    modes = [Mode("auto", "int8"), Mode("int8", "int8"), Mode("bfloat16", "int8")]
    wanted = [Mode("auto", "int8"), Mode("bfloat16", "int8"), Mode("int8", "int8")]
    assert with_baselines(modes) == wanted

    found = {}
    for mode, kl in zip(wanted, (0.016, 0.004, 0.033), strict=True):
        total = DivergenceSum()
        total.add(np.zeros(2, np.float32), logits_with_divergence(kl), 0)
        found[mode] = total.result()
        assert found[mode].mean_kl == pytest.approx(kl, rel=1e-3)
    within = {mode: is_within(found[mode], limit_of(mode, found)) for mode in wanted}
    assert within == {wanted[0]: False, wanted[1]: True, wanted[2]: True}
    assert limit_of(wanted[2], found) == pytest.approx(0.034, rel=1e-3)
    assert limit_of(Mode("int4", "int8"), found) is None


def logits_with_divergence(kl: float) -> NDArray[np.float32]:
    """Two logits, [x, 0], such that KL(1/2, 1/2 || softmax) = log(cosh(x / 2)) is `kl`."""
    return np.array([2 * np.arccosh(np.exp(kl)), 0], np.float32)
