"""A model on disk, whatever its format: metadata and memory-mapped tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.checkpoints.gguf import read_gguf
from octavo.checkpoints.model_folder import check_model_folder
from octavo.checkpoints.safetensors import read_safetensors_folder
from octavo.checkpoints.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened model. Tensor bytes are read from disk when they are used."""

    path: Path
    """The GGUF file, or the folder with config.json."""
    format: Literal["gguf", "safetensors"]
    metadata: Mapping[str, Any]
    """GGUF's key-value pairs, or config.json."""
    tensors: Mapping[str, Tensor]


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a Hugging Face folder. Raises CheckpointError naming file and field or tensor."""
    if path.is_dir():
        check_model_folder(path)
        return Checkpoint(path, "safetensors", *read_safetensors_folder(path))
    return Checkpoint(path, "gguf", *read_gguf(path))
