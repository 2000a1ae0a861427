"""A model as far as its header and config tell: sizes without weights. For planning, before anything is fetched."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.checkpoints.checkpoint import Checkpoint
from octavo.checkpoints.json_object import read_json_object
from octavo.checkpoints.model_folder import check_model_folder
from octavo.checkpoints.quants import QuantType
from octavo.errors import ConfigError
from octavo.models.families import read_spec
from octavo.models.model import load_model
from octavo.models.spec import DecoderSpec
from octavo.models.weights import expected_shapes

_TORCH_DTYPES = {
    "float32": QuantType.F32,
    "float16": QuantType.F16,
    "bfloat16": QuantType.BF16,
}


@dataclass(frozen=True, slots=True)
class WeightOutline:
    """Name, format and shape of a weight."""

    name: str
    quant: QuantType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """What sizes depend on."""

    name: str
    spec: DecoderSpec
    weights: Mapping[str, WeightOutline]


def read_outline(path: Path) -> ModelOutline:
    """Of a GGUF file, or of a Hugging Face folder, which may hold nothing but its config.json.

    Raises CheckpointError naming file and field; UnknownArchitectureError.
    """
    if path.is_dir() and not any(path.glob("*.safetensors")):
        check_model_folder(path)
        return _of_config(read_json_object(path / "config.json"), path)
    model = load_model(path)
    weights = {
        name: WeightOutline(name, weight.quant, weight.shape)
        for name, weight in model.weights.items()
    }
    return ModelOutline(model.name, model.spec, weights)


def outline_of_numbers(numbers: Mapping[str, int]) -> ModelOutline:
    """A Llama of these sizes in bfloat16; the keys are those of a config.json. Raises ConfigError, CheckpointError."""
    required = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    )
    missing = [name for name in required if name not in numbers]
    if missing:
        raise ConfigError(f"a model given by numbers needs {', '.join(missing)} as well")
    return _of_config({"architectures": ["LlamaForCausalLM"], **numbers}, Path("the given numbers"))


def _of_config(config: Mapping[str, Any], path: Path) -> ModelOutline:
    spec = read_spec(Checkpoint(path, "safetensors", config, {}))
    dtype = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    quant = _TORCH_DTYPES.get(str(dtype), QuantType.BF16)
    weights = {
        name: WeightOutline(name, quant, shape) for name, shape in expected_shapes(spec).items()
    }
    return ModelOutline(path.name, spec, weights)
