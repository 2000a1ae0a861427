"""Every backend behind one door, so that a test of numbers is written once and holds for all."""

from array import array
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.backends.reference.runner import ReferenceRunner
from octavo.core.step import BlockCopy, BlockId, Sampling, SeqStep, StepPlan, StepResult
from octavo.models.model import Model

BACKENDS = ("reference", "native")
"""Kinds that tests of numbers are parametrized over."""


class ForwardRunner(Protocol):
    """A `Runner` that also gives the logits of all tokens."""

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    def run(self, plan: StepPlan) -> StepResult: ...
    def forward(self, plan: StepPlan) -> NDArray[Any]: ...
    def close(self) -> None: ...
    @property
    def page_bytes(self) -> int: ...
    def read_page(self, block: BlockId) -> memoryview: ...
    def write_page(self, block: BlockId, page: memoryview) -> None: ...


def make_runner(
    kind: str, model: Model, *, num_blocks: int, block_size: int = 16, **options: Any
) -> ForwardRunner:
    """A runner of backend `kind`, exact float32 unless `options` say otherwise."""
    if kind == "reference":
        return ReferenceRunner(
            model.spec, model.weights, num_blocks=num_blocks, block_size=block_size, **options
        )
    if kind == "native":
        from octavo.backends.native.runner import NativeRunner  # late: needs the compiled part

        defaults: dict[str, Any] = {
            "dtype": "float32",
            "kv_cache_dtype": "float32",
            "max_num_batched_tokens": 2048,
            "num_threads": 2,
        }
        runner: ForwardRunner = NativeRunner(
            model.spec,
            model.weights,
            num_blocks=num_blocks,
            block_size=block_size,
            **(defaults | options),
        )
        return runner
    raise ValueError(f"unknown backend {kind}")


def scattered_table(num_tokens: int, runner: ForwardRunner, seed: int = 0) -> "array[int]":
    """Blocks for so many tokens, in random order from all over the pool."""
    num_needed = -(-num_tokens // runner.block_size)
    order = np.random.default_rng(seed).permutation(runner.num_blocks)
    return array("i", order[:num_needed].tolist())


def seq_step(
    token_ids: list[int],
    table: "array[int]",
    *,
    start: int = 0,
    seq_id: int = 0,
    sampling: tuple[Sampling, ...] = (),
    **fields: Any,
) -> SeqStep:
    """One sequence's part of a step."""
    return SeqStep(seq_id, array("i", token_ids), start, table, sampling, **fields)


def plan_of(*seqs: SeqStep, copies: tuple[BlockCopy, ...] = ()) -> StepPlan:
    """A step of these sequences."""
    return StepPlan(0, seqs, copies)


def prompt_logits(
    runner: ForwardRunner, token_ids: list[int], *, chunk: int | None = None, seed: int = 0
) -> NDArray[Any]:
    """The logits of every position of one prompt, [T, V], computed in chunks over scattered blocks."""
    table = scattered_table(len(token_ids), runner, seed)
    chunk = chunk or len(token_ids)
    rows = [
        runner.forward(plan_of(seq_step(token_ids[first : first + chunk], table, start=first)))
        for first in range(0, len(token_ids), chunk)
    ]
    return np.concatenate(rows)
