"""Bits of the logits do not depend on where pages have been: dropped, swapped out, or in the file of an earlier process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.backends.reference.runner import ReferenceRunner
from octavo.core.costs import RestoreCosts
from octavo.core.sampling_params import SamplingParams
from octavo.engine.prefix_store import PrefixStore
from octavo.engine.swap_file import SwapFile
from octavo.models.model import Model, load_model
from support.backends import ForwardRunner, make_runner, plan_of, scattered_table, seq_step
from support.recorder import Outcome, serve
from support.tiny_models import tiny_folder

NATIVE: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "kv_cache_dtype": "int8"},
    "fp8": {"dtype": "bfloat16", "kv_cache_dtype": "fp8"},
}
KINDS = ("reference", *NATIVE)
ATOL = 2e-5
"""Of the reference alone: numpy sums in an order that depends on the number of rows. Logits are about 5."""
PARAMS = SamplingParams(temperature=1.0, max_tokens=40, ignore_eos=True)
COSTS = {
    "drop_tail": RestoreCosts(token=1.0),
    "swap": RestoreCosts(token=1e6, page_out=1e-6, page_in=1e-6),
    "recompute": RestoreCosts(),
}


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(tiny_folder("llama"))


@pytest.fixture(scope="module", params=KINDS)
def runner(request: pytest.FixtureRequest, model: Model) -> Iterator[ForwardRunner]:
    if request.param == "reference":
        runner = make_runner("reference", model, num_blocks=64)
    else:
        runner = make_runner("native", model, num_blocks=64, **NATIVE[request.param])
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def prompts(model: Model) -> list[list[int]]:
    return [
        [(7 * i + 13 * n) % (model.spec.vocab_size - 1) + 1 for i in range(length)]
        for n, length in enumerate((30, 17, 40, 5, 33))
    ]


@pytest.fixture(scope="module")
def alone(runner: ForwardRunner, prompts: list[list[int]]) -> list[Outcome]:
    """In a pool for all, without any cache."""
    return serve(runner, prompts, PARAMS, prefix_caching=False)


def assert_same(runner: ForwardRunner, got: list[Outcome], wanted: list[Outcome]) -> None:
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.tokens == b.tokens, f"tokens of prompt {i}"
        if isinstance(runner, ReferenceRunner):
            np.testing.assert_allclose(logits(a), logits(b), rtol=0, atol=ATOL)
        else:
            assert a.bits == b.bits, f"logits of prompt {i}"


def logits(outcome: Outcome) -> NDArray[np.float32]:
    return np.stack([np.frombuffer(bits, np.float32) for row in outcome.bits for bits in row])


def test_a_page_is_what_was_read_wherever_it_is_written(
    runner: ForwardRunner, prompts: list[list[int]]
) -> None:
    prompt = prompts[0]
    old = scattered_table(len(prompt), runner, seed=1)
    new = scattered_table(len(prompt), runner, seed=2)
    runner.forward(plan_of(seq_step(prompt, old)))
    last, start = prompt[-1:], len(prompt) - 1
    wanted = runner.forward(plan_of(seq_step(last, old, start=start)))
    pages = [bytes(runner.read_page(block)) for block in old]
    assert {len(page) for page in pages} == {runner.page_bytes}
    for block, page in zip(new, pages, strict=True):
        runner.write_page(block, memoryview(page))
    assert [bytes(runner.read_page(block)) for block in new] == pages
    got = runner.forward(plan_of(seq_step(last, new, start=start)))
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("method", list(COSTS))
def test_after_each_method_of_preemption(
    runner: ForwardRunner,
    prompts: list[list[int]],
    alone: list[Outcome],
    method: str,
    prefix_caching: bool,
) -> None:
    costs = COSTS[method]
    swap = SwapFile(40 * runner.page_bytes, runner.page_bytes) if method == "swap" else None
    got = serve(
        runner,
        prompts,
        PARAMS,
        num_blocks=10,
        max_num_batched_tokens=64,
        prefix_caching=prefix_caching,
        costs=RestoreCosts(costs.token, costs.page_out, costs.page_in),
        swap=swap,
    )
    assert_same(runner, got, alone)
    usage = got[0].usage
    num_again = usage.num_preemptions - usage.num_dropped_tails - usage.num_swaps
    counts = {
        "drop_tail": usage.num_dropped_tails,
        "swap": usage.num_blocks_swapped_in,
        "recompute": num_again,
    }
    assert counts[method] > 0


def test_parallel_samples_are_swapped_together(
    runner: ForwardRunner, prompts: list[list[int]], model: Model
) -> None:
    params = SamplingParams(n=3, temperature=1.0, max_tokens=30, ignore_eos=True)
    wanted = serve(runner, prompts[:2], params, prefix_caching=False)
    swap = SwapFile(40 * runner.page_bytes, runner.page_bytes)
    costs = RestoreCosts(token=1e6, page_out=1e-6, page_in=1e-6)
    got = serve(runner, prompts[:2], params, num_blocks=13, costs=costs, swap=swap)
    assert_same(runner, got, wanted)
    usage = got[0].usage
    assert usage.num_swaps > 0
    # Shared pages are written once.
    assert usage.num_blocks_swapped_out < 3 * usage.num_swaps * 2


def test_after_a_restart_from_disk(
    runner: ForwardRunner, prompts: list[list[int]], alone: list[Outcome], tmp_path: Path
) -> None:
    def store() -> PrefixStore:
        return PrefixStore(tmp_path, 1 << 26, runner.page_bytes, b"of this model")

    cold = serve(runner, prompts, PARAMS, store=store())
    assert cold[0].usage.num_blocks_stored > 0
    warm = serve(runner, prompts, PARAMS, store=store())
    assert_same(runner, warm, alone)
    assert [outcome.num_cached_tokens for outcome in warm] == [16, 16, 32, 0, 32]
    assert (warm[0].usage.num_blocks_loaded, warm[0].usage.num_blocks_failed) == (6, 0)
    (path,) = tmp_path.iterdir()
    damage(path)
    hurt = serve(runner, prompts, PARAMS, store=store())
    assert_same(runner, hurt, alone)
    assert hurt[0].usage.num_blocks_failed > 0
    assert sum(outcome.num_cached_tokens for outcome in hurt) == 0


def damage(path: Path) -> None:
    """Turn one bit in each page, long after its header."""
    data = bytearray(path.read_bytes())
    for place in range(4096 + 1000, len(data), 4096):
        data[place] ^= 1
    path.write_bytes(data)
