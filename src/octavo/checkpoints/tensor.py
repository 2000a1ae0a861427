"""A tensor as it lies in a checkpoint file, and the mapping of a file into memory."""

import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.quants import QuantType
from octavo.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor whose bytes stay in the memory-mapped file until they are read."""

    name: str
    quant: QuantType
    shape: tuple[int, ...]
    """numpy order: the last dimension is contiguous."""
    data: NDArray[np.uint8]
    """uint8 [rows, bytes per row], read-only; rows is the product of all dimensions but the last."""
    file: Path
    """The file that holds it, for messages."""


def map_file(path: Path) -> mmap.mmap:
    """The file's bytes, read-only. Raises CheckpointError for anything but a readable, non-empty file."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise CheckpointError(f"{path}: the file is empty")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    if data[:20] == b"version https://git-":
        raise CheckpointError(
            f"{path}: this is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`"
        )
    return data


def tensor_view(
    name: str, quant: QuantType, shape: tuple[int, ...], contents: NDArray[np.uint8], file: Path
) -> Tensor:
    """A Tensor over exactly its bytes, uint8 [bytes]. The caller has checked their number."""
    return Tensor(name, quant, shape, contents.reshape(-1, quant.row_bytes(shape[-1])), file)
