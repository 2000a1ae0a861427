"""The same answer at any load: tokens and the bits of the logits do not depend on what is around a request."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.models.model import Model, load_model
from support.backends import ForwardRunner, make_runner
from support.bf16_folder import bf16_folder
from support.recorder import GREEDY, Outcome, serve
from support.tiny_models import tiny_folder

MODES: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32", "kv_cache_dtype": "float32"},
    "auto": {"dtype": "auto", "kv_cache_dtype": "bfloat16"},
    "auto with int8 cache": {"dtype": "auto", "kv_cache_dtype": "int8"},
    "bfloat16 with fp8 cache": {"dtype": "bfloat16", "kv_cache_dtype": "fp8"},
    "int8 with fp8 cache": {"dtype": "int8", "kv_cache_dtype": "fp8"},
    "int4": {"dtype": "int4", "kv_cache_dtype": "bfloat16"},
}
LENGTHS = (1, 15, 16, 17, 40, 130)


def prompts(vocab_size: int, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    rng = np.random.default_rng(11)
    return [rng.integers(1, vocab_size, n).tolist() for n in lengths]


def runner_for(model: Model, mode: str, **options: Any) -> ForwardRunner:
    defaults = {"num_blocks": 160, "max_num_batched_tokens": 512}
    return make_runner("native", model, **(defaults | MODES[mode] | options))


def assert_same(got: list[Outcome], wanted: list[Outcome], what: str) -> None:
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.tokens == b.tokens, f"{what}: tokens of prompt {i}"
        assert a.bits == b.bits, f"{what}: logits of prompt {i}"


@pytest.fixture(scope="module", params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(smollm2_path: Path, mode: str) -> Model:
    from_floats = MODES[mode]["dtype"] in ("int8", "int4")
    return load_model(bf16_folder(smollm2_path) if from_floats else smollm2_path)


@pytest.fixture(scope="module")
def runner(model: Model, mode: str) -> Iterator[ForwardRunner]:
    runner = runner_for(model, mode, num_threads=1)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def alone(runner: ForwardRunner, model: Model) -> list[Outcome]:
    """Each prompt by itself, whole, on one thread."""
    return [serve(runner, [p])[0] for p in prompts(model.spec.vocab_size)]


@pytest.mark.model
class TestSmolLM2:
    def test_in_one_batch(self, runner: ForwardRunner, alone: list[Outcome], model: Model) -> None:
        assert_same(serve(runner, prompts(model.spec.vocab_size)), alone, "batch")

    @pytest.mark.parametrize("chunk", [1, 7, 32])
    def test_in_chunks(
        self, runner: ForwardRunner, alone: list[Outcome], model: Model, chunk: int
    ) -> None:
        lengths = LENGTHS[:4] if chunk == 1 else LENGTHS
        got = serve(
            runner,
            prompts(model.spec.vocab_size, LENGTHS)[: len(lengths)],
            max_num_batched_tokens=chunk,
            max_num_seqs=min(chunk, 8),
        )
        assert_same(got, alone[: len(lengths)], f"chunks of {chunk}")

    @pytest.mark.parametrize("block_size", [32, 64, 128])
    def test_with_other_blocks_and_two_threads(
        self, alone: list[Outcome], model: Model, mode: str, block_size: int
    ) -> None:
        other = runner_for(
            model, mode, num_blocks=2560 // block_size, block_size=block_size, num_threads=2
        )
        assert_same(serve(other, prompts(model.spec.vocab_size)), alone, f"blocks of {block_size}")
        other.close()

    def test_after_preemption(self, runner: ForwardRunner, model: Model) -> None:
        # Each prompt starts in a block or two and grows to four: six blocks hold three of them at first.
        short = prompts(model.spec.vocab_size, (1, 15, 16, 17))
        params = replace(GREEDY, max_tokens=40)
        wanted = [serve(runner, [p], params)[0] for p in short]
        got = serve(runner, short, params, num_blocks=6)
        assert sum(outcome.num_preemptions for outcome in got) > 0
        assert_same(got, wanted, "preemption")

    @pytest.mark.long
    def test_in_random_batches(self, runner: ForwardRunner, model: Model) -> None:
        rng = np.random.default_rng(5)
        many = prompts(model.spec.vocab_size, tuple(int(n) for n in rng.integers(1, 200, 24)))
        params = [replace(GREEDY, max_tokens=int(n)) for n in rng.integers(1, 40, 24)]
        wanted = [serve(runner, [p], q)[0] for p, q in zip(many, params, strict=True)]
        for seed in range(4):
            order = np.random.default_rng(seed).permutation(24).tolist()
            got = serve(
                runner,
                [many[i] for i in order],
                [params[i] for i in order],
                max_num_batched_tokens=int(rng.integers(20, 300)),
                max_num_seqs=int(rng.integers(2, 20)),
                num_blocks=int(rng.integers(20, 60)),
            )
            assert_same(got, [wanted[i] for i in order], f"order {seed}")


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3"])
def test_every_family_in_random_batches(name: str, mode: str) -> None:
    model = load_model(tiny_folder(name))
    lengths = (1, 3, 16, 31, 129, 200, 40, 8, 17, 90)
    params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, top_k=40, seed=None)
    one = runner_for(model, mode, num_threads=1)
    many = prompts(model.spec.vocab_size, lengths)
    # One request per call has the seed of the first: give each its own call in the same place.
    wanted = serve(one, many, params)
    for block_size, threads, budget, blocks in ((16, 2, 33, 40), (32, 2, 512, 15), (64, 1, 20, 12)):
        other = runner_for(model, mode, num_threads=threads, block_size=block_size)
        got = serve(
            other, many, params, max_num_batched_tokens=budget, max_num_seqs=5, num_blocks=blocks
        )
        assert_same(got, wanted, f"blocks of {block_size}, {threads} threads, budget {budget}")
        other.close()
    one.close()


def test_parallel_samples_share_the_prompt_and_keep_their_bits(mode: str) -> None:
    model = load_model(tiny_folder("llama"))
    params = SamplingParams(n=5, temperature=1.0, max_tokens=20, ignore_eos=True)
    runner = runner_for(model, mode)
    prompt = prompts(model.spec.vocab_size, (21,))
    together = serve(runner, prompt, params)[0]
    assert len({tuple(tokens) for tokens in together.tokens}) > 1
    # A pool for one sequence and a bit: the samples preempt each other and are computed again.
    tight = serve(runner, prompt, params, num_blocks=5)[0]
    assert tight.num_preemptions > 0
    assert_same([tight], [together], "preempted samples")
    runner.close()
