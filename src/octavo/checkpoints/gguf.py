"""GGUF files, versions 2 and 3, little-endian: the header is read here, tensors stay memory-mapped.

Layout: magic, version, number of tensors, number of key-value pairs; the pairs; for each tensor its name,
dimensions (fastest first), type and offset; padding; the tensors' data. Strings and arrays carry a
64-bit length. Nothing in the file is trusted: every count is checked against the bytes that are left
before anything is allocated, and every error is a CheckpointError that names file and field.
"""

import mmap
from array import array
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from octavo.checkpoints.quants import QuantType, supported_names
from octavo.checkpoints.tensor import Tensor, map_file, tensor_view
from octavo.errors import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# Limits far above any real model; they bound the time that a forged count can cost.
MAX_PAIRS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_KEY_BYTES = 65535
MAX_STRING_BYTES = 1 << 26
MAX_ARRAY_STRINGS = 1 << 22
MAX_DIMENSIONS = 4

_U32, _U64 = Struct("<I"), Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"), 1: np.dtype("<i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"),
    4: np.dtype("<u4"), 5: np.dtype("<i4"), 6: np.dtype("<f4"),
    10: np.dtype("<u8"), 11: np.dtype("<i8"), 12: np.dtype("<f8"),
}  # fmt: skip
_TYPE_NAMES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32",
    "bool", "string", "array", "uint64", "int64", "float64",
)  # fmt: skip

_ARRAY_TYPES = {
    "tokenizer.ggml.tokens": ("string",),
    "tokenizer.ggml.merges": ("string",),
    "tokenizer.ggml.scores": ("float32",),
    "tokenizer.ggml.token_type": ("int32", "uint32"),
}
"""What the arrays must hold that are read without looking at their type."""

_OTHER_QUANT_NAMES = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


class StringArray(Sequence[str]):
    """The strings of a metadata array, decoded when they are asked for.

    Raises CheckpointError, naming file and field, for one that is not UTF-8.
    """

    def __init__(self, path: Path, field: str, data: mmap.mmap, ends: "array[int]") -> None:
        # ends[0] is where the array begins; string i follows its 8-byte length after ends[i].
        self._path, self._field, self._data, self._ends = path, field, data, ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        return map(self._decode, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        chosen = range(len(self))[index]
        return self._decode(chosen) if isinstance(chosen, int) else [*map(self._decode, chosen)]

    def _decode(self, i: int) -> str:
        raw = self._data[self._ends[i] + 8 : self._ends[i + 1]]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{self._path}: {self._field}[{i}] is not UTF-8") from None


class _Cursor:
    """Reads the header front to back. `field`, the name of what is being read, goes into every error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = map_file(path)
        self.size = len(self.data)
        self.position = 0
        self.field = "magic"

    def fail(self, problem: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {self.field}: {problem}")

    def need(self, num_bytes: int) -> None:
        """Refuse the file unless so many bytes are left."""
        left = self.size - self.position
        if num_bytes > left:
            self.fail(f"the file is cut off or damaged: {num_bytes} bytes needed, {left} left")

    def take(self, kind: Struct) -> Any:
        self.need(kind.size)
        (value,) = kind.unpack_from(self.data, self.position)
        self.position += kind.size
        return value

    def count(self, limit: int, least_bytes: int) -> int:
        """A 64-bit count of items that take at least so many bytes each."""
        count = int(self.take(_U64))
        if count > limit:
            self.fail(f"must be at most {limit}; given: {count}")
        self.need(count * least_bytes)
        return count

    def string(self, limit: int = MAX_STRING_BYTES) -> str:
        length = self.count(limit, 1)
        raw = self.data[self.position : self.position + length]
        self.position += length
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.fail("is not UTF-8")

    def strings(self) -> StringArray:
        """An array of strings. Only the lengths are walked: a vocabulary has 262,144."""
        count = self.count(MAX_ARRAY_STRINGS, _U64.size)
        data, length_at, position = self.data, _U64.unpack_from, self.position
        last_start = self.size - _U64.size
        ends = array("Q", [position])
        for _ in range(count):
            if position > last_start:
                break
            position += 8 + length_at(data, position)[0]
            ends.append(min(position, self.size + 1))
        if len(ends) <= count or position > self.size:
            cut = len(ends) - (2 if position > self.size else 1)
            self.fail(f"the file is cut off or damaged: string {cut} of {count} passes its end")
        self.position = position
        return StringArray(self.path, self.field, data, ends)

    def numbers(self, dtype: np.dtype[Any], count: int | None = None) -> NDArray[Any]:
        """So many numbers, or as many as the array's count says, in place."""
        if count is None:
            count = self.count(self.size, dtype.itemsize)
        self.need(count * dtype.itemsize)
        values = np.frombuffer(self.data, dtype, count, self.position)
        self.position += values.nbytes
        return values

    def booleans(self, count: int | None = None) -> NDArray[np.bool_]:
        values = self.numbers(np.dtype("u1"), count)
        if values.size and values.max() > 1:
            self.fail(f"a bool must be 0 or 1; given: {values.max()}")
        return values.view(np.bool_)

    def value(self, kind: int) -> Any:
        """One metadata value of GGUF type `kind`."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        if kind == _BOOL:
            return bool(self.booleans(1)[0])
        if kind not in _NUMBERS:
            self.fail(f"unknown value type {kind}")
        return self.numbers(_NUMBERS[kind], 1).item()

    def _array(self) -> Any:
        kind = self.take(_U32)
        wanted = _ARRAY_TYPES.get(self.field)
        if wanted and _type_name(kind) not in wanted:
            self.fail(f"must be an array of {' or '.join(wanted)}; given: {_type_name(kind)}")
        if kind == _STRING:
            return self.strings()
        if kind == _BOOL:
            return self.booleans()
        if kind not in _NUMBERS:
            self.fail(f"arrays of {_type_name(kind)} are not supported")
        return self.numbers(_NUMBERS[kind])


class _TensorInfo(NamedTuple):
    name: str
    quant: QuantType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata and tensors of a GGUF file.

    Metadata values are str, int, float, bool, numpy arrays, or `StringArray`. Raises CheckpointError.
    """
    cursor = _Cursor(path)
    num_tensors, num_pairs = _read_counts(cursor)
    metadata = _read_pairs(cursor, num_pairs)
    _check_vocabulary(path, metadata)
    infos = [_read_tensor_info(cursor, i) for i in range(num_tensors)]
    alignment = _alignment(path, metadata)
    data_start = -(-cursor.position // alignment) * alignment
    _check_layout(path, infos, data_start, cursor.size, alignment)
    contents = np.frombuffer(cursor.data, np.uint8)
    tensors: dict[str, Tensor] = {}
    for name, quant, shape, offset, num_bytes in infos:
        if name in tensors:
            raise CheckpointError(f"{path}: tensor {name} appears twice")
        start = data_start + offset
        tensors[name] = tensor_view(name, quant, shape, contents[start : start + num_bytes], path)
    return metadata, tensors


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    cursor.need(4)
    if cursor.data[:4] != MAGIC:
        cursor.fail(f"not a GGUF file: it begins with {cursor.data[:4]!r}")
    cursor.position = 4
    cursor.field = "version"
    version = int(cursor.take(_U32))
    if version and version & 0xFFFF == 0:
        cursor.fail("this is a big-endian file; only little-endian is supported")
    if version not in VERSIONS:
        cursor.fail(f"must be {' or '.join(map(str, VERSIONS))}; given: {version}")
    # A tensor takes at least 33 bytes of header: name, dimensions, type, offset. A pair takes 14.
    cursor.field = "tensor_count"
    num_tensors = cursor.count(MAX_TENSORS, 33)
    cursor.field = "metadata_kv_count"
    return num_tensors, cursor.count(MAX_PAIRS, 14)


def _read_pairs(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(count):
        cursor.field = f"metadata key {i}"
        key = cursor.string(MAX_KEY_BYTES)
        if not key:
            cursor.fail("is empty")
        if key in metadata:
            cursor.fail(f"{key} appears twice")
        cursor.field = key
        kind = int(cursor.take(_U32))
        if key in _ARRAY_TYPES and kind != _ARRAY:
            cursor.fail(f"must be an array; given: {_type_name(kind)}")
        metadata[key] = cursor.value(kind)
    return metadata


def _read_tensor_info(cursor: _Cursor, i: int) -> _TensorInfo:
    cursor.field = f"tensor {i} name"
    name = cursor.string(MAX_KEY_BYTES)
    if not name:
        cursor.fail("is empty")
    cursor.field = f"tensor {name} dimensions"
    num_dimensions = cursor.take(_U32)
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        cursor.fail(f"there must be 1 to {MAX_DIMENSIONS}; given: {num_dimensions}")
    dimensions = [int(cursor.take(_U64)) for _ in range(num_dimensions)]
    if 0 in dimensions:
        cursor.fail(f"each must be at least 1; given: {dimensions}")
    cursor.field = f"tensor {name} type"
    quant = _quant_type(cursor, int(cursor.take(_U32)))
    columns, rows = dimensions[0], 1
    for dimension in dimensions[1:]:
        rows *= dimension
    if columns % quant.block_len:
        cursor.fail(
            f"rows of {columns} numbers are not whole {quant.name} blocks of {quant.block_len}"
        )
    num_bytes = rows * quant.row_bytes(columns)
    cursor.field = f"tensor {name} offset"
    offset = int(cursor.take(_U64))
    return _TensorInfo(name, quant, tuple(reversed(dimensions)), offset, num_bytes)


def _quant_type(cursor: _Cursor, number: int) -> QuantType:
    try:
        return QuantType(number)
    except ValueError:
        name = _OTHER_QUANT_NAMES.get(number, "unknown")
        cursor.fail(f"{name} ({number}) is not supported; supported are {supported_names()}")


def _alignment(path: Path, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise CheckpointError(
            f"{path}: general.alignment: must be a power of two; given: {alignment!r}"
        )
    return alignment


def _check_layout(
    path: Path, infos: Sequence[_TensorInfo], data_start: int, file_size: int, alignment: int
) -> None:
    """Every tensor begins where it may, ends inside the file, and shares no byte with another."""
    available = file_size - data_start
    previous_end, previous_name = 0, ""
    for name, _, shape, offset, num_bytes in sorted(infos, key=attrgetter("offset")):
        where = f"{path}: tensor {name}"
        if offset % alignment:
            raise CheckpointError(
                f"{where} offset: must be a multiple of {alignment}; given: {offset}"
            )
        if offset < previous_end:
            raise CheckpointError(f"{where} offset: {offset} lies inside tensor {previous_name}")
        if offset + num_bytes > available:
            raise CheckpointError(
                f"{where}: the file is cut off or damaged: {num_bytes} bytes of dimensions {list(shape)} at "
                f"offset {offset}, but the file holds {max(0, available)} bytes of data"
            )
        previous_end, previous_name = offset + num_bytes, name


def _check_vocabulary(path: Path, metadata: Mapping[str, Any]) -> None:
    """Scores and token types, where given, are one for each token."""
    if "tokenizer.ggml.tokens" not in metadata:
        return
    num_tokens = len(metadata["tokenizer.ggml.tokens"])
    for key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        if key in metadata and len(metadata[key]) != num_tokens:
            raise CheckpointError(
                f"{path}: {key}: must have as many entries as tokenizer.ggml.tokens ({num_tokens}); "
                f"given: {len(metadata[key])}"
            )


def _type_name(kind: int) -> str:
    return _TYPE_NAMES[kind] if kind < len(_TYPE_NAMES) else f"unknown type {kind}"
