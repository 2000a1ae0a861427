"""Number formats of weights, as GGUF defines them, and their exact dequantization.

A row is a run of blocks; a block holds `block_len` numbers in `block_bytes` bytes. F32, F16 and BF16
are blocks of one number. All multi-byte fields are little-endian.
"""

from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_CHUNK_NUMBERS = 1 << 18
"""Numbers dequantized at once: the temporaries (a few bytes a number) stay in the processor's cache."""


class QuantType(Enum):
    """A number format; the value is GGUF's number for it."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30

    @property
    def block_len(self) -> int:
        """Numbers in a block."""
        return _SIZES[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return _SIZES[self][1]

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row. Raises ValueError unless `columns` is a multiple of `block_len`."""
        if columns % self.block_len:
            raise ValueError(
                f"{columns} columns are not whole {self.name} blocks of {self.block_len}"
            )
        return columns // self.block_len * self.block_bytes


_SIZES = {
    QuantType.F32: (1, 4),
    QuantType.F16: (1, 2),
    QuantType.BF16: (1, 2),
    QuantType.Q4_0: (32, 2 + 16),
    QuantType.Q4_1: (32, 2 + 2 + 16),
    QuantType.Q5_0: (32, 2 + 4 + 16),
    QuantType.Q5_1: (32, 2 + 2 + 4 + 16),
    QuantType.Q8_0: (32, 2 + 32),
    QuantType.Q4_K: (256, 2 + 2 + 12 + 128),
    QuantType.Q5_K: (256, 2 + 2 + 12 + 32 + 128),
    QuantType.Q6_K: (256, 128 + 64 + 16 + 2),
}


def dequantize(quant: QuantType, raw: Bytes) -> Floats:
    """The numbers that `raw`, uint8 [rows, bytes per row], stands for: float32 [rows, columns].

    Every intermediate is rounded to float32 in the order of GGML's definition, so results are equal to
    the bit. F32 may come back as a read-only view of `raw`. Raises ValueError if a row is not whole blocks.
    """
    rows, num_bytes = raw.shape
    if num_bytes % quant.block_bytes:
        raise ValueError(
            f"{num_bytes} bytes are not whole {quant.name} blocks of {quant.block_bytes}"
        )
    columns = num_bytes // quant.block_bytes * quant.block_len
    if quant is QuantType.F32:
        return np.require(np.ascontiguousarray(raw).view(np.float32), requirements="A")
    values = np.empty((rows, columns), dtype=np.float32)
    rows_at_once = max(1, _CHUNK_NUMBERS // max(1, columns))
    decode = _DECODERS[quant]
    # A damaged scale may be infinite; the product is then what float32 says it is, without a warning.
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, rows, rows_at_once):
            chunk = np.ascontiguousarray(raw[first : first + rows_at_once])
            blocks = chunk.reshape(-1, quant.block_bytes)
            values[first : first + rows_at_once] = decode(blocks).reshape(-1, columns)
    return values


# Each decoder takes blocks, uint8 [n, block_bytes], and returns float32 [n, block_len].


def _f16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[n, b] bytes to [n, 2b] values: all low halves, then all high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """[n, 4] bytes to [n, 32] values of 0 or 16: bit j belongs to number j."""
    bits: Bytes = np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)
    return bits


def _q4_0(blocks: Bytes) -> Floats:
    scale = _f16(blocks[:, 0:2].copy())
    return scale * (_nibbles(blocks[:, 2:18]).view(np.int8) - 8).astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    scale, minimum = _f16(blocks[:, 0:2].copy()), _f16(blocks[:, 2:4].copy())
    return scale * _nibbles(blocks[:, 4:20]).astype(np.float32) + minimum


def _q5_0(blocks: Bytes) -> Floats:
    scale = _f16(blocks[:, 0:2].copy())
    quants = _nibbles(blocks[:, 6:22]) | _fifth_bits(blocks[:, 2:6])
    return scale * (quants.view(np.int8) - 16).astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    scale, minimum = _f16(blocks[:, 0:2].copy()), _f16(blocks[:, 2:4].copy())
    quants = _nibbles(blocks[:, 8:24]) | _fifth_bits(blocks[:, 4:8])
    return scale * quants.astype(np.float32) + minimum


def _q8_0(blocks: Bytes) -> Floats:
    scale = _f16(blocks[:, 0:2].copy())
    return scale * blocks[:, 2:34].view(np.int8).astype(np.float32)


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The eight 6-bit scales and eight 6-bit minimums in the 12 bytes of Q4_K and Q5_K.

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minimums 0-3 in their low six bits; the two high bits there
    are those of scales 4-7 and minimums 4-7, whose low four bits are the halves of bytes 8-11.
    """
    first, second, last = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (last & 15) | ((first >> 6) << 4)], axis=1)
    minimums = np.concatenate([second & 63, (last >> 4) | ((second >> 6) << 4)], axis=1)
    return scales, minimums


def _k_halves(packed: Bytes) -> Bytes:
    """[n, 128] bytes to [n, 8, 32] values: groups 2g and 2g + 1 are the halves of bytes 32g .. 32g + 31."""
    groups = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)


def _q4_or_5_k(blocks: Bytes, quants: Bytes) -> Floats:
    scales, minimums = _k_scales(blocks[:, 4:16])
    scale = _f16(blocks[:, 0:2].copy()) * scales.astype(np.float32)
    minimum = _f16(blocks[:, 2:4].copy()) * minimums.astype(np.float32)
    return scale[:, :, None] * quants.astype(np.float32) - minimum[:, :, None]


def _q4_k(blocks: Bytes) -> Floats:
    return _q4_or_5_k(blocks, _k_halves(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Floats:
    # Bit g of byte j of the high bits belongs to number j of group g.
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    fifth_bits: Bytes = ((blocks[:, None, 16:48] >> shifts) & np.uint8(1)) << np.uint8(4)
    return _q4_or_5_k(blocks, _k_halves(blocks[:, 48:176]) | fifth_bits)


def _q6_k(blocks: Bytes) -> Floats:
    # Two halves of 128 numbers: 64 bytes of low nibbles and 32 bytes of high bit pairs each. In a half,
    # numbers 0-31 and 32-63 are the low nibbles of its bytes 0-31 and 32-63, numbers 64-127 the high ones.
    low = blocks[:, 0:128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)
    high = ((blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3) << 4
    quants = ((low | high).view(np.int8) - 32).reshape(-1, 16, 16).astype(np.float32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    scale = _f16(blocks[:, 208:210].copy()) * scales
    return scale[:, :, None] * quants


_DECODERS: dict[QuantType, Callable[[Bytes], Floats]] = {
    QuantType.F16: _f16,
    QuantType.BF16: _bf16,
    QuantType.Q4_0: _q4_0,
    QuantType.Q4_1: _q4_1,
    QuantType.Q5_0: _q5_0,
    QuantType.Q5_1: _q5_1,
    QuantType.Q8_0: _q8_0,
    QuantType.Q4_K: _q4_k,
    QuantType.Q5_K: _q5_k,
    QuantType.Q6_K: _q6_k,
}


def supported_names() -> str:
    """The formats, for messages."""
    return ", ".join(quant.name for quant in QuantType)
