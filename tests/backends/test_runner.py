"""What every runner must do with a plan, whatever its numbers: pages, chunks, batches, copies, reports."""

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import BlockCopy, Sampling, StepResult
from octavo.models.model import Model, load_model
from support.backends import (
    BACKENDS,
    ForwardRunner,
    make_runner,
    plan_of,
    prompt_logits,
    scattered_table,
    seq_step,
)
from support.tiny_models import prompt, tiny_folder

NUM_BLOCKS = 40
NAMES = ("llama", "mistral", "gemma3")
ATOL = 2e-5
"""Logits are about 5; chunks and batches change only the order of summation."""


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> Model:
    return load_model(tiny_folder(request.param))


@pytest.fixture(params=BACKENDS)
def runner(request: pytest.FixtureRequest, model: Model) -> Iterator[ForwardRunner]:
    runner = make_runner(request.param, model, num_blocks=NUM_BLOCKS)
    yield runner
    runner.close()


def greedy(seq_id: int, token_ids: list[int], **params: Any) -> Sampling:
    return Sampling(seq_id, SamplingParams(temperature=0.0, **params), 0, len(token_ids))


def log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    values = logits.astype(np.float64)
    values -= values.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = values - np.log(np.exp(values).sum(axis=-1, keepdims=True))
    return result


@pytest.mark.parametrize("chunk", [1, 7, 16, 32, 50])
def test_chunks_give_the_logits_of_the_whole(runner: ForwardRunner, chunk: int) -> None:
    ids = prompt(70)
    whole = prompt_logits(runner, ids, seed=1)
    np.testing.assert_allclose(
        prompt_logits(runner, ids, chunk=chunk, seed=2), whole, rtol=0, atol=ATOL
    )


@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("backend", BACKENDS)
def test_block_size_does_not_matter(backend: str, model: Model, block_size: int) -> None:
    results = [
        prompt_logits(make_runner(backend, model, num_blocks=12, block_size=size), prompt(90))
        for size in (16, block_size)
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=ATOL)


def test_sequences_of_a_batch_do_not_see_each_other(runner: ForwardRunner) -> None:
    """A long prompt's second chunk, a short prompt and a decode step, in one plan."""
    long_ids, short_ids = prompt(50), prompt(20)
    alone_long = prompt_logits(runner, long_ids, seed=3)
    alone_short = prompt_logits(runner, short_ids, seed=4)
    order = np.random.default_rng(5).permutation(NUM_BLOCKS).tolist()
    tables = [array("i", order[:4]), array("i", order[4:6]), array("i", order[6:8])]
    runner.forward(plan_of(seq_step(long_ids[:30], tables[0]), seq_step(short_ids[:19], tables[2])))
    logits = runner.forward(
        plan_of(
            seq_step(long_ids[30:], tables[0], start=30, seq_id=1),
            seq_step(short_ids, tables[1], seq_id=2),
            seq_step(short_ids[19:], tables[2], start=19, seq_id=3),
        )
    )
    np.testing.assert_allclose(logits[:20], alone_long[30:], rtol=0, atol=ATOL)
    np.testing.assert_allclose(logits[20:40], alone_short, rtol=0, atol=ATOL)
    np.testing.assert_allclose(logits[40], alone_short[19], rtol=0, atol=ATOL)


def test_what_other_blocks_hold_does_not_matter(runner: ForwardRunner) -> None:
    ids = prompt(40)
    table = array("i", [7, 3, 30])
    before = runner.forward(plan_of(seq_step(ids, table)))
    # Fill every other block, and the unused end of the last, with other sequences' keys and values.
    others = [b for b in range(NUM_BLOCKS) if b not in table]
    runner.forward(plan_of(seq_step(prompt(len(others) * 16), array("i", others))))
    runner.forward(plan_of(seq_step(prompt(48), table)))
    runner.forward(plan_of(seq_step(ids[:39], table)))
    after = runner.forward(plan_of(seq_step(ids[39:], table, start=39)))
    np.testing.assert_allclose(after[0], before[39], rtol=0, atol=ATOL)


def test_shared_prefix_is_read_through_two_tables(runner: ForwardRunner) -> None:
    prefix, first, second = prompt(32), prompt(5), prompt(9)
    alone = [prompt_logits(runner, prefix + end, seed=6)[32:] for end in (first, second)]
    runner.forward(plan_of(seq_step(prefix, array("i", [9, 4]))))
    logits = runner.forward(
        plan_of(
            seq_step(first, array("i", [9, 4, 20]), start=32, seq_id=1),
            seq_step(second, array("i", [9, 4, 1]), start=32, seq_id=2),
        )
    )
    np.testing.assert_allclose(logits[:5], alone[0], rtol=0, atol=ATOL)
    np.testing.assert_allclose(logits[5:], alone[1], rtol=0, atol=ATOL)


def test_copies_come_first_and_cover_all_layers(runner: ForwardRunner) -> None:
    """Copy-on-write: a fork goes on in a copy of the partial block, the parent in the original."""
    ids, parent_end, child_end = prompt(21), prompt(3), prompt(4)
    expected = [prompt_logits(runner, ids + end, seed=7)[21:] for end in (parent_end, child_end)]
    runner.forward(plan_of(seq_step(ids, array("i", [2, 8]))))
    logits = runner.forward(
        plan_of(
            seq_step(parent_end, array("i", [2, 8]), start=21, seq_id=1),
            seq_step(child_end, array("i", [2, 33]), start=21, seq_id=2),
            copies=(BlockCopy(src=8, dst=33),),
        )
    )
    np.testing.assert_allclose(logits[:3], expected[0], rtol=0, atol=ATOL)
    np.testing.assert_allclose(logits[3:], expected[1], rtol=0, atol=ATOL)


def test_run_draws_from_the_last_token_of_each_sequence(runner: ForwardRunner) -> None:
    first, second, unfinished = prompt(20), prompt(33), prompt(17)
    tables = [array("i", [0, 1]), array("i", [5, 4, 3]), array("i", [9, 8])]
    expected = [prompt_logits(runner, ids, seed=8)[-1].argmax() for ids in (first, second)]
    result = runner.run(
        plan_of(
            seq_step(first, tables[0], seq_id=10, sampling=(greedy(10, first),)),
            seq_step(unfinished, tables[2], seq_id=12),
            seq_step(second, tables[1], seq_id=11, sampling=(greedy(11, second),)),
        )
    )
    assert result == StepResult(expected)


def test_parallel_samples_draw_from_one_row(runner: ForwardRunner) -> None:
    ids = prompt(9)
    sampling = tuple(
        Sampling(k, SamplingParams(temperature=1.0), seed, 9)
        for k, seed in enumerate((3, 4, 3, 5, 6, 7))
    )
    result = runner.run(plan_of(seq_step(ids, array("i", [0]), sampling=sampling)))
    drawn = result.token_ids
    assert len(drawn) == 6
    assert drawn[0] == drawn[2]
    assert len(set(drawn)) > 1


def test_logprobs_of_the_drawn_token(runner: ForwardRunner) -> None:
    ids = prompt(12)
    expected = log_softmax(prompt_logits(runner, ids)[-1])
    step = seq_step(ids, array("i", [0]), sampling=(greedy(0, ids, logprobs=3),))
    logprobs = runner.run(plan_of(step)).tokens[0].logprobs
    assert logprobs is not None
    assert (logprobs.token_id, logprobs.rank, len(logprobs.top)) == (int(expected.argmax()), 1, 3)
    assert logprobs.logprob == pytest.approx(expected.max(), abs=1e-4)
    for token_id, value in logprobs.top:
        assert value == pytest.approx(expected[token_id], abs=1e-4)


@pytest.mark.parametrize("chunk", [5, 64, 70, 100])
def test_prompt_logprobs_over_chunks(runner: ForwardRunner, chunk: int) -> None:
    ids = prompt(70)
    expected = log_softmax(prompt_logits(runner, ids))
    table = scattered_table(70, runner, seed=9)
    values = []
    for first in range(0, 70, chunk):
        part = ids[first : first + chunk]
        targets = array("i", ids[first + 1 : first + chunk + 1])
        step = seq_step(
            part, table, start=first, seq_id=4, num_prompt_logprobs=2, prompt_targets=targets
        )
        values += runner.run(plan_of(step)).prompt_logprobs[4]
    assert [v.token_id for v in values] == ids[1:]
    for position, value in enumerate(values):
        row = expected[position]
        assert value.logprob == pytest.approx(row[value.token_id], abs=1e-4)
        assert value.rank == 1 + (row > row[value.token_id]).sum()
        assert [i for i, _ in value.top] == np.argsort(-row)[:2].tolist()


def test_prompt_logprobs_and_a_sample_in_one_step(runner: ForwardRunner) -> None:
    ids = prompt(6)
    step = seq_step(
        ids,
        array("i", [0]),
        seq_id=1,
        sampling=(greedy(1, ids),),
        num_prompt_logprobs=0,
        prompt_targets=array("i", ids[1:]),
    )
    result = runner.run(plan_of(step))
    assert len(result.tokens) == 1
    assert [(v.token_id, v.top) for v in result.prompt_logprobs[1]] == [(t, ()) for t in ids[1:]]


def test_an_empty_plan_with_copies(runner: ForwardRunner) -> None:
    ids = prompt(16)
    runner.forward(plan_of(seq_step(ids, array("i", [0]))))
    result = runner.run(plan_of(copies=(BlockCopy(0, 11),)))
    assert (list(result.tokens), result.prompt_logprobs) == ([], {})
    expected = prompt_logits(runner, [*ids, 5], seed=10)[16]
    logits = runner.forward(plan_of(seq_step([5], array("i", [11, 12]), start=16)))
    np.testing.assert_allclose(logits[0], expected, rtol=0, atol=ATOL)


def test_close_twice(runner: ForwardRunner) -> None:
    runner.close()
    runner.close()
