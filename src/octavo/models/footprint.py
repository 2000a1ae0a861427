"""Bytes that a model takes: its weights, its blocks, and the scratch memory of a step. Shared with planning."""

from octavo.models.spec import DecoderSpec
from octavo.models.weights import ModelWeights

HEAD_DIM_MULTIPLE = 16
"""Heads are padded to whole vectors of 16 numbers in the pool."""
KEYS_AT_ONCE = 128
"""Keys that attention takes at once; each thread holds their scores."""

_NUMBER_BYTES = {"float32": 4, "bfloat16": 2}


def padded_head_dim(spec: DecoderSpec) -> int:
    """Numbers that a head takes in the pool."""
    return -(-spec.head_dim // HEAD_DIM_MULTIPLE) * HEAD_DIM_MULTIPLE


def block_bytes(spec: DecoderSpec, block_size: int, kv_cache_dtype: str) -> int:
    """Bytes of one block: keys and values of all layers for `block_size` tokens."""
    numbers = 2 * spec.num_layers * spec.num_kv_heads * padded_head_dim(spec)
    return numbers * block_size * _NUMBER_BYTES[kv_cache_dtype]


def weight_bytes(weights: ModelWeights, dtype: str) -> int:
    """Bytes of the weights in memory, for dtype auto, float32 or bfloat16.

    With auto, matrices keep their bytes of the file. Vectors (norms and biases) are float32 always.
    A tied head is the embedding and counts once.
    """
    total = 0
    for weight in weights.values():
        if len(weight.shape) == 1:
            total += 4 * weight.shape[0]
        elif dtype == "auto":
            total += weight.data.nbytes
        else:
            rows, columns = weight.shape
            total += rows * columns * _NUMBER_BYTES[dtype]
    return total


def scratch_bytes(
    spec: DecoderSpec, max_num_batched_tokens: int, max_num_seqs: int, num_threads: int
) -> int:
    """Bytes of activations and logits in the largest step, in float32.

    A token holds the residual stream, a normed and a projected copy of it, queries, keys, values,
    attention's output, and both halves of the feed-forward layer; a sequence holds a row of logits;
    a thread the scores and outputs of all heads.
    """
    heads = (2 * spec.num_heads + 2 * spec.num_kv_heads) * padded_head_dim(spec)
    per_token = 3 * spec.hidden_size + heads + 2 * spec.intermediate_size
    per_thread = spec.num_heads * (KEYS_AT_ONCE + padded_head_dim(spec))
    return 4 * (
        max_num_batched_tokens * per_token
        + max_num_seqs * spec.vocab_size
        + num_threads * per_thread
    )
