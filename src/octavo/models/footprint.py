"""Bytes that a model takes: its weights, its blocks, and the scratch memory of a step. Shared with planning."""

from collections.abc import Mapping
from typing import Protocol

from octavo.checkpoints.quants import QuantType
from octavo.models.spec import DecoderSpec

HEAD_DIM_MULTIPLE = 16
"""Heads are padded to whole vectors of 16 numbers in the pool."""
LOGIT_ROWS = 64
"""Rows of logits that are computed and used at a time."""
PACKED_BYTES = {
    QuantType.F32: 2.0,
    QuantType.F16: 2.0,
    QuantType.BF16: 2.0,
    QuantType.Q4_0: 0.625,
    QuantType.Q4_1: 0.625,
    QuantType.Q4_K: 0.625,
    QuantType.Q5_0: 1.0625,
    QuantType.Q5_1: 1.125,
    QuantType.Q5_K: 1.125,
    QuantType.Q6_K: 1.125,
    QuantType.Q8_0: 1.0625,
}
"""Bytes of a weight with dtype auto: the packed forms of csrc/kernels/formats.h."""


class StoredWeight(Protocol):
    """A weight as far as its size goes: a `Weight`, or one that is known by its header only."""

    @property
    def name(self) -> str:
        """As `ModelWeights` names it."""
        ...

    @property
    def quant(self) -> QuantType:
        """How its numbers are stored."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of a matrix, or the length of a vector."""
        ...


KV_NUMBERS = ("float32", "bfloat16", "int8", "fp8")
"""What the numbers of the cache can be."""

_NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "fp8": 1}


def padded_head_dim(spec: DecoderSpec) -> int:
    """Numbers that a head takes in the pool."""
    return -(-spec.head_dim // HEAD_DIM_MULTIPLE) * HEAD_DIM_MULTIPLE


def block_bytes(spec: DecoderSpec, block_size: int, kv_cache_dtype: str) -> int:
    """Bytes of one block: keys and values of all layers for `block_size` tokens.

    int8 keeps two float32 scales beside the numbers of each token and head.
    """
    heads = spec.num_layers * spec.num_kv_heads
    numbers = 2 * padded_head_dim(spec) * _NUMBER_BYTES[kv_cache_dtype]
    scales = 8 if kv_cache_dtype == "int8" else 0
    return heads * (numbers + scales) * block_size


def weight_bytes(weights: Mapping[str, StoredWeight], dtype: str) -> int:
    """Bytes of the weights in memory, for dtype auto, float32, bfloat16, int8 or int4.

    Vectors (norms and biases) are float32 always.
    A tied head is the embedding and counts once.
    """
    total = 0
    for weight in weights.values():
        if len(weight.shape) == 1:
            total += 4 * weight.shape[0]
        else:
            rows, columns = weight.shape
            total += int(rows * columns * _weight_number_bytes(weight, dtype))
            total += 4 * rows if dtype == "int8" else 0
    return total


def quantized_types(weights: Mapping[str, StoredWeight]) -> tuple[str, ...]:
    """Names of the quantized formats among them, in alphabetical order."""
    names = {weight.quant.name for weight in weights.values()}
    return tuple(sorted(names - {"F32", "F16", "BF16"}))


def int4_type(weight: StoredWeight) -> QuantType:
    """The type whose packed form a float matrix takes with dtype int4: rows that are not whole groups stay BF16."""
    if weight.shape[1] % QuantType.Q4_1.block_len:
        return QuantType.BF16
    return QuantType.Q8_0 if weight.name in ("embed", "head") else QuantType.Q4_1


def _weight_number_bytes(weight: StoredWeight, dtype: str) -> float:
    if dtype == "auto":
        return PACKED_BYTES[weight.quant]
    if dtype == "int4":
        return PACKED_BYTES[int4_type(weight)]
    return _NUMBER_BYTES[dtype]


def scratch_bytes(spec: DecoderSpec, max_num_batched_tokens: int, num_threads: int) -> int:
    """Bytes of activations and logits in the largest step, in float32.

    A token holds the residual stream and a branch of it, queries, and what the matrices read: the normed
    stream, attention's output, the gated feed-forward layer. Logits exist for a slice of rows at a time, and
    each thread's sampler works on a copy of one.
    """
    queries = spec.num_heads * padded_head_dim(spec)
    per_token = 3 * spec.hidden_size + 2 * queries + spec.intermediate_size
    logits = (LOGIT_ROWS + 3 * num_threads) * spec.vocab_size
    return 4 * (max_num_batched_tokens * per_token + logits)
