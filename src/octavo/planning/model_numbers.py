"""A model as a cost model sees it: bytes to read and operations to compute, in one mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from octavo.errors import ConfigError
from octavo.models.footprint import block_bytes
from octavo.models.spec import DecoderSpec
from octavo.models.weights import expected_shapes
from octavo.planning.work import AttentionSpan


@dataclass(frozen=True, slots=True)
class ModelNumbers:
    """Sizes of a model with its weights and its cache held in certain formats."""

    name: str
    span: AttentionSpan
    max_model_len: int
    """Longest sequence in tokens."""
    weight_bytes: int
    """Bytes of the weights, read once a step."""
    token_weights: int
    """Weights that each token is multiplied with."""
    row_weights: int
    """Weights of the output head, which each row of logits is multiplied with."""
    key_bytes: int
    """Bytes of a key and a value of one token in one layer, all heads."""
    pair_operations: int
    """Operations for one token and one key in one layer, all heads."""

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers."""
        return self.key_bytes * self.span.num_layers


def numbers_of(
    name: str, spec: DecoderSpec, *, weight_bytes: int, kv_cache_dtype: str
) -> ModelNumbers:
    """The numbers of a decoder whose weights take `weight_bytes` in memory."""
    shapes = expected_shapes(spec)
    embedding = prod(shapes["embed"])
    head = embedding if spec.tied_head else prod(shapes["head"])
    matrices = sum(prod(shape) for key, shape in shapes.items() if key.startswith("layers."))
    return ModelNumbers(
        name=name,
        span=AttentionSpan.of(spec.layers),
        max_model_len=spec.max_position_embeddings,
        weight_bytes=weight_bytes,
        token_weights=matrices,
        row_weights=head,
        key_bytes=block_bytes(spec, 1, kv_cache_dtype) // spec.num_layers,
        pair_operations=4 * spec.num_heads * spec.head_dim,
    )


def _published(
    name: str, layers: int, hidden: int, vocab: int, billions: float, max_len: int
) -> ModelNumbers:
    """A model of multi-head attention in 16 bits, from the numbers of its paper."""
    parameters = int(billions * 1e9)
    head = vocab * hidden
    return ModelNumbers(
        name=name,
        span=AttentionSpan(((None, layers),)),
        max_model_len=max_len,
        weight_bytes=2 * parameters,
        token_weights=parameters - head,
        row_weights=head,
        key_bytes=2 * hidden * 2,
        pair_operations=4 * hidden,
    )


PUBLISHED: Mapping[str, ModelNumbers] = {
    numbers.name: numbers
    for numbers in (
        # Zhang et al., OPT, arXiv 2205.01068, table 1; vocabulary 50,272 and 2,048 positions.
        _published("opt-13b", 40, 5120, 50272, 13.0, 2048),
        _published("opt-66b", 64, 9216, 50272, 66.0, 2048),
        _published("opt-175b", 96, 12288, 50272, 173.0, 2048),
        # Touvron et al., LLaMA, arXiv 2302.13971, table 2.
        _published("llama-13b", 40, 5120, 32000, 13.0, 2048),
    )
}
"""Models of published measurements that Octavo does not run, as numbers: 16 bits, no grouped heads."""


def published(name: str) -> ModelNumbers:
    """The numbers of a published model. Raises ConfigError that lists the names."""
    try:
        return PUBLISHED[name]
    except KeyError:
        raise ConfigError(f"published models are {', '.join(PUBLISHED)}; given: {name}") from None
