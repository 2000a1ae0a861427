"""From an architecture's name to its spec. A new Llama-like family is a short function and a row here."""

from collections.abc import Callable, Iterable
from typing import Final

from octavo.checkpoints.checkpoint import Checkpoint
from octavo.errors import UnknownArchitectureError
from octavo.models import config_families, gguf_families
from octavo.models.fields import Fields
from octavo.models.spec import DecoderSpec

CONFIG_FAMILIES: Final[dict[str, Callable[[Fields], DecoderSpec]]] = {
    "LlamaForCausalLM": config_families.llama,
    "LLaMAForCausalLM": config_families.llama,
    "MistralForCausalLM": config_families.mistral,
    "Qwen2ForCausalLM": config_families.qwen2,
    "Qwen3ForCausalLM": config_families.qwen3,
    "Gemma3ForCausalLM": config_families.gemma3,
}
"""By the first of config.json's `architectures`."""

CONFIG_MODEL_TYPES: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
"""Of a config.json without `architectures`."""

GGUF_FAMILIES: Final[dict[str, Callable[[Checkpoint, Fields], DecoderSpec]]] = {
    "llama": gguf_families.llama,
    "qwen2": gguf_families.qwen2,
    "qwen3": gguf_families.qwen3,
    "gemma3": gguf_families.gemma3,
}
"""By `general.architecture`. Mistral and SmolLM files say llama."""


def read_spec(checkpoint: Checkpoint) -> DecoderSpec:
    """The spec of an opened model.

    Raises UnknownArchitectureError, and CheckpointError for a value that is missing, wrong or not
    supported: nothing that changes answers is ignored.
    """
    if checkpoint.format == "gguf":
        return _read_gguf_spec(checkpoint)
    return _read_config_spec(checkpoint)


def _read_gguf_spec(checkpoint: Checkpoint) -> DecoderSpec:
    where = str(checkpoint.path)
    name = Fields(checkpoint.metadata, where).text("general.architecture")
    family = GGUF_FAMILIES.get(name)
    if family is None:
        raise _unknown(where, name, GGUF_FAMILIES)
    return family(checkpoint, Fields(checkpoint.metadata, where, prefix=f"{name}."))


def _read_config_spec(checkpoint: Checkpoint) -> DecoderSpec:
    where = str(checkpoint.path / "config.json")
    config = Fields(checkpoint.metadata, where)
    names = config.raw("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        name = names[0]
    else:
        model_type = config.text("model_type", "none")
        name = CONFIG_MODEL_TYPES.get(model_type, model_type)
    family = CONFIG_FAMILIES.get(name)
    if family is None:
        raise _unknown(where, name, CONFIG_FAMILIES)
    return family(config)


def _unknown(where: str, name: str, known: Iterable[str]) -> UnknownArchitectureError:
    return UnknownArchitectureError(
        f"{where}: the architecture {name!r} is not supported; supported are {', '.join(known)}"
    )
