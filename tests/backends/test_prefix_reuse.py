"""Keys and values out of the prefix cache give the logits that computing them gives."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.core.sampling_params import SamplingParams
from octavo.models.model import Model, load_model
from support.backends import BACKENDS, ForwardRunner, make_runner
from support.recorder import GREEDY, Outcome, serve
from support.tiny_models import tiny_folder

ATOL = 2e-5
"""Of the reference alone: numpy sums in an order that depends on the number of rows. Logits are about 5."""
PARAMS = replace(GREEDY, max_tokens=20)
KINDS: dict[str, dict[str, Any]] = {
    **{backend: {} for backend in BACKENDS},
    "bfloat16 pages": {"dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
    "int8 pages": {"dtype": "bfloat16", "kv_cache_dtype": "int8"},
}
"""The last two are native, as `native` with pages of float32 is."""


@pytest.fixture(scope="module", params=["llama", "gemma3", "qwen3"])
def model(request: pytest.FixtureRequest) -> Model:
    return load_model(tiny_folder(request.param))


def beginnings(vocab_size: int) -> list[list[int]]:
    """Prompts that begin alike: whole, cut inside and between pages, gone on with, and off in the middle."""
    rng = np.random.default_rng(3)
    base = rng.integers(1, vocab_size, 70).tolist()
    other = rng.integers(1, vocab_size, 40).tolist()
    cuts = [base, base, base[:64], base[:64], base[:33], base[:5], base[:1]]
    return [*cuts, base + other, base[:37] + other, base[:48] + other, other, base + other[:1]]


def logits(outcome: Outcome) -> NDArray[Any]:
    return np.stack([np.frombuffer(bits, np.float32) for row in outcome.bits for bits in row])


def assert_same(kind: str, got: list[Outcome], wanted: list[Outcome]) -> None:
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.tokens == b.tokens, f"prompt {number}"
        if kind != "reference":
            assert a.bits == b.bits, f"prompt {number}"
        else:
            np.testing.assert_allclose(logits(a), logits(b), rtol=0, atol=ATOL)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runner(kind: str, model: Model) -> Iterator[ForwardRunner]:
    backend = kind if kind in BACKENDS else "native"
    runner = make_runner(backend, model, num_blocks=120, **KINDS[kind])
    yield runner
    runner.close()


def cold(runner: ForwardRunner, prompts: list[list[int]], params: SamplingParams) -> list[Outcome]:
    """Each alone in an engine without a prefix cache."""
    return [serve(runner, [prompt], params, prefix_caching=False)[0] for prompt in prompts]


def test_hits_on_what_has_ended_and_on_what_runs(
    kind: str, runner: ForwardRunner, model: Model
) -> None:
    prompts = beginnings(model.spec.vocab_size)
    wanted = cold(runner, prompts, PARAMS)
    for num_at_once in (1, 12):
        got = serve(runner, prompts, PARAMS, max_num_seqs=num_at_once)
        assert_same(kind, got, wanted)
        found = [outcome.num_cached_tokens for outcome in got]
        assert found[0] == found[-2] == 0
        assert found[1] == (69 if num_at_once == 1 else 64)
        assert found[7] >= 64
        assert found[9] == 48
    assert all(outcome.num_cached_tokens == 0 for outcome in wanted)


def test_hits_and_evictions_in_a_pool_that_is_too_small(
    kind: str, runner: ForwardRunner, model: Model
) -> None:
    """Preempted sequences come back to what is left of their own pages."""
    prompts = beginnings(model.spec.vocab_size)
    params = replace(PARAMS, max_tokens=40)
    got = serve(runner, prompts, params, max_num_batched_tokens=50, num_blocks=10)
    assert sum(outcome.num_preemptions for outcome in got) > 0
    assert sum(outcome.num_cached_tokens for outcome in got) > 0
    assert_same(kind, got, cold(runner, prompts, params))


def test_a_conversation_goes_on_in_the_pages_of_its_answers(
    kind: str, runner: ForwardRunner, model: Model
) -> None:
    turns = [[5, 6, 7]]
    for _ in range(4):
        answer = serve(runner, [turns[-1]], PARAMS, prefix_caching=False)[0].tokens[0]
        turns.append([*turns[-1], *answer, 9, 8])
    got = serve(runner, turns, PARAMS, max_num_seqs=1)
    assert_same(kind, got, cold(runner, turns, PARAMS))
    # All but the last token of each answer, and what the user says.
    assert [outcome.num_cached_tokens for outcome in got] == [
        0,
        *(len(turn) - 3 for turn in turns[1:]),
    ]


def test_parallel_samples_of_a_cached_prompt(
    kind: str, runner: ForwardRunner, model: Model
) -> None:
    prompt = beginnings(model.spec.vocab_size)[0]
    params = SamplingParams(n=3, temperature=1.0, max_tokens=12, ignore_eos=True)
    got = serve(runner, [prompt] * 3, params, max_num_seqs=3)
    assert [outcome.num_cached_tokens for outcome in got] == [0, 69, 69]
    for number, outcome in enumerate(got):
        # `serve` seeds by place: prompts of one token before it bring a lone one there.
        wanted = serve(runner, [[1]] * number + [prompt], params, prefix_caching=False)[-1]
        assert_same(kind, [outcome], [wanted])
