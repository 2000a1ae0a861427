"""The tokens of a step in one line, and where each belongs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.core.step import SeqStep, StepPlan

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchSequence:
    """One sequence's share of a batch."""

    rows: slice
    """Its tokens among the T of the batch."""
    start: int
    """Position of the first of them."""
    block_table: Ints
    """[M]"""


@dataclass(frozen=True, slots=True)
class Batch:
    """All sequences of a step, one after the other."""

    token_ids: Ints
    """[T]"""
    positions: Ints
    """[T], in their sequences."""
    slots: Ints
    """[T]: where keys and values go, block * B + place in the block."""
    sequences: tuple[BatchSequence, ...]


def flatten(plan: StepPlan, num_blocks: int, block_size: int) -> Batch:
    """Raises ValueError for a table that is too short or names a block that is not in the pool."""
    token_ids: list[Ints] = [np.empty(0, np.int64)]
    positions: list[Ints] = [np.empty(0, np.int64)]
    slots: list[Ints] = [np.empty(0, np.int64)]
    sequences: list[BatchSequence] = []
    end = 0
    for seq in plan.seqs:
        first, end = end, end + len(seq.token_ids)
        table = np.array(seq.block_table, np.int64)
        own_positions = seq.start + np.arange(len(seq.token_ids))
        token_ids.append(np.array(seq.token_ids, np.int64))
        positions.append(own_positions)
        slots.append(_slots(seq, table, own_positions, num_blocks, block_size))
        sequences.append(BatchSequence(slice(first, end), seq.start, table))
    return Batch(
        np.concatenate(token_ids),
        np.concatenate(positions),
        np.concatenate(slots),
        tuple(sequences),
    )


def _slots(seq: SeqStep, table: Ints, positions: Ints, num_blocks: int, block_size: int) -> Ints:
    num_needed = -(-(seq.start + len(positions)) // block_size)
    if len(table) < num_needed:
        raise ValueError(
            f"sequence {seq.seq_id} needs {num_needed} blocks; its table has {len(table)}"
        )
    if ((table < 0) | (table >= num_blocks)).any():
        raise ValueError(
            f"sequence {seq.seq_id} has a block id that is not from 0 to {num_blocks - 1}"
        )
    slots: Ints = table[positions // block_size] * block_size + positions % block_size
    return slots
