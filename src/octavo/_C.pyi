"""Octavo's CPU kernels and the plan that runs them."""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


class WeightFormat(enum.Enum):
    """How packed weights lie in memory."""

    F32 = 0

    BF16 = 1

    U4 = 2

    S8 = 3

    S8X16 = 4

    U8 = 5

    I8 = 6

class ActFormat(enum.Enum):
    """Numbers that are multiplied with the weights."""

    F32 = 0

    BF16 = 1

    INT8 = 2

class KvFormat(enum.Enum):
    """Numbers of the cache."""

    F32 = 0

    BF16 = 1

    INT8 = 2

    FP8 = 3

class Activation(enum.Enum):
    """The function on the gate half of the feed-forward layer."""

    SILU = 0

    GELU_TANH = 1

class ModelShape:
    """The numbers of a model that the ops share."""

    def __init__(self) -> None: ...

    @property
    def hidden_size(self) -> int: ...

    @hidden_size.setter
    def hidden_size(self, arg: int, /) -> None: ...

    @property
    def num_heads(self) -> int: ...

    @num_heads.setter
    def num_heads(self, arg: int, /) -> None: ...

    @property
    def num_kv_heads(self) -> int: ...

    @num_kv_heads.setter
    def num_kv_heads(self, arg: int, /) -> None: ...

    @property
    def head_dim(self) -> int: ...

    @head_dim.setter
    def head_dim(self, arg: int, /) -> None: ...

    @property
    def intermediate_size(self) -> int: ...

    @intermediate_size.setter
    def intermediate_size(self, arg: int, /) -> None: ...

    @property
    def vocab_size(self) -> int: ...

    @vocab_size.setter
    def vocab_size(self, arg: int, /) -> None: ...

    @property
    def num_layers(self) -> int: ...

    @num_layers.setter
    def num_layers(self, arg: int, /) -> None: ...

    @property
    def norm_eps(self) -> float: ...

    @norm_eps.setter
    def norm_eps(self, arg: float, /) -> None: ...

    @property
    def attention_scale(self) -> float: ...

    @attention_scale.setter
    def attention_scale(self, arg: float, /) -> None: ...

    @property
    def max_tokens(self) -> int: ...

    @max_tokens.setter
    def max_tokens(self, arg: int, /) -> None: ...

    @property
    def num_blocks(self) -> int: ...

    @num_blocks.setter
    def num_blocks(self, arg: int, /) -> None: ...

    @property
    def block_size(self) -> int: ...

    @block_size.setter
    def block_size(self, arg: int, /) -> None: ...

    @property
    def kv_format(self) -> KvFormat: ...

    @kv_format.setter
    def kv_format(self, arg: KvFormat, /) -> None: ...

class Plan:
    """Packed weights, the block pool, and the ops of a step."""

    def __init__(self, arg0: ModelShape, arg1: int, /) -> None: ...

    def add_linear(self, k: int, formats: Sequence[WeightFormat]) -> int: ...

    def pack(self, linear: int, type: int, rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows_per_block: int, first_tile: int, block_stride: int, tile_stride: int) -> None: ...

    def add_vector(self, arg: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> int: ...

    def add_rope(self, inv_freq: Sequence[float], attention_factor: float) -> int: ...

    def add_embed(self, embedding: int, multiplier: float) -> None: ...

    def add_norm(self, post_weight: int, weight: int, reader: int) -> None: ...

    def add_qkv(self, linear: int, bias: int, query_norm: int, key_norm: int, layer: int, rope: int) -> None: ...

    def add_attention(self, layer: int, window: int, reader: int) -> None: ...

    def add_output(self, linear: int, bias: int, to_branch: bool) -> None: ...

    def add_gate_up(self, linear: int, bias: int, activation: Activation, reader: int) -> None: ...

    def add_down(self, linear: int, bias: int, to_branch: bool) -> None: ...

    def set_head(self, linear: int, norm_weight: int) -> None: ...

    def run(self, tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sequences: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], copies: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], draws: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias_values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], out_tokens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], out_logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], out_top_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], out_top_logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')] | None) -> None: ...

    def read_page(self, block: int, page: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Copies one block, all layers in one piece."""

    def write_page(self, block: int, page: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Fills one block with what was read."""

    def grow_pool(self) -> bool:
        """Prepares memory for blocks to come; whether more is to be done."""

    def set_profiling(self, on: bool) -> None: ...

    def profile(self) -> dict[str, float]:
        """Seconds by op since profiling was turned on."""

    @property
    def weight_bytes(self) -> int: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def pool_bytes(self) -> int: ...

    @property
    def scratch_bytes(self) -> int: ...

def packed_format(arg: int, /) -> WeightFormat:
    """The packed form that holds a file's quantization type."""

def act_format(format: WeightFormat) -> ActFormat:
    """The activations that packed weights multiply with."""

def isa() -> str:
    """
    The instruction set in use: avx512, avx2 or generic (forced by OCTAVO_ISA).
    """

def supported_isas() -> str: ...

def read_bandwidth(num_bytes: int, num_threads: int) -> float:
    """
    Bytes per second that all threads together read from memory; median of five passes.
    """

def barrier_latency(num_threads: int) -> float:
    """
    Seconds that one barrier of all threads takes; the median of many rounds, in the best of several pools.
    """

def operation_rate(format: ActFormat, num_threads: int) -> float:
    """
    Multiplications and additions per second of all threads together, without loads; the best of five passes.
    """
