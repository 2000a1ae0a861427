"""A model ready for a backend: its spec, its weights, and what its authors say about generation."""

from dataclasses import dataclass
from pathlib import Path

from octavo.checkpoints.checkpoint import Checkpoint, open_checkpoint
from octavo.models.encoder import is_encoder
from octavo.models.families import read_spec
from octavo.models.generation import GenerationDefaults, read_generation_defaults
from octavo.models.spec import DecoderSpec
from octavo.models.weights import ModelWeights
from octavo.models.weights_map import load_weights


@dataclass(frozen=True, slots=True)
class Model:
    """Complete and checked. Weights stay in the file until a backend reads them."""

    path: Path
    """The GGUF file or the model folder."""
    name: str
    """For people: the checkpoint's own name, or that of the file or folder."""
    spec: DecoderSpec
    weights: ModelWeights
    generation: GenerationDefaults


def load_model(path: Path) -> Model:
    """Open a GGUF file or a Hugging Face folder, in milliseconds: tensors are memory-mapped.

    Raises CheckpointError naming file and field or tensor; UnknownArchitectureError.
    """
    checkpoint = open_checkpoint(path)
    spec = read_spec(checkpoint)
    return Model(
        path=path,
        name=_name(checkpoint),
        spec=spec,
        weights=load_weights(checkpoint, spec),
        generation=read_generation_defaults(checkpoint, spec.vocab_size),
    )


def load_generation_defaults(path: Path) -> GenerationDefaults:
    """What the authors say about generation; nothing for an encoder, which generates nothing."""
    return GenerationDefaults(frozenset(), {}) if is_encoder(path) else load_model(path).generation


def _name(checkpoint: Checkpoint) -> str:
    key = "general.name" if checkpoint.format == "gguf" else "_name_or_path"
    name = checkpoint.metadata.get(key)
    if isinstance(name, str) and name.strip():
        return name.strip()
    return (
        checkpoint.path.resolve().stem
        if checkpoint.format == "gguf"
        else checkpoint.path.resolve().name
    )
