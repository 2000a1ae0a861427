"""Tensors of KServe requests and responses: values in JSON, or their bytes after it (Triton's binary data extension).

A text is a BYTES element: in binary four bytes with its length, little-endian, and then itself, in UTF-8.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from octavo.errors import InvalidParameterError

Value: TypeAlias = str | bool | int | float
MAX_DIMENSIONS = 8
_LENGTH = struct.Struct("<I")
_FORMATS = {"BOOL": "?", "UINT32": "I", "FP32": "f"}
_JSON_TYPES: dict[str, tuple[type, ...]] = {"BYTES": (str,), "BOOL": (bool, int)}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that the model takes or gives, as its metadata has it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """-1: any length."""

    def metadata(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


class BinaryData:
    """The bytes behind the JSON of a request. Inputs take theirs in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._used = 0

    def take(self, name: str, num_bytes: object) -> bytes:
        """The next bytes. Raises InvalidParameterError if there are not so many."""
        num_left = len(self._data) - self._used
        if type(num_bytes) is not int or not 0 <= num_bytes <= num_left:
            raise InvalidParameterError(
                f"inputs {name}: binary_data_size must be an integer from 0 to {num_left}, the bytes that are left; "
                f"given: {str(num_bytes)[:40]}",
                parameter=name,
                value=num_bytes,
            )
        begin, self._used = self._used, self._used + num_bytes
        return self._data[begin : self._used]

    def check_used(self) -> None:
        """Raise InvalidParameterError if bytes are left that no input has asked for."""
        if self._used < len(self._data):
            raise InvalidParameterError(
                f"the body has {len(self._data)} bytes of binary data; the inputs name {self._used}"
            )


def read_value(spec: TensorSpec, given: dict[str, Any], binary: BinaryData) -> Value:
    """The one element of an input tensor. Raises InvalidParameterError."""
    name = spec.name
    if given.get("datatype") != spec.datatype:
        _refuse(name, "datatype", spec.datatype, given.get("datatype"))
    shape = given.get("shape")
    is_shape = isinstance(shape, list) and 0 < len(shape) <= MAX_DIMENSIONS
    if not is_shape or any(type(size) is not int or size != 1 for size in shape or ()):
        _refuse(name, "shape", "[1]", shape)
    parameters = given.get("parameters")
    if isinstance(parameters, dict) and parameters.get("shared_memory_region") is not None:
        raise InvalidParameterError(
            f"inputs {name}: shared memory is not available", parameter=name
        )
    if isinstance(parameters, dict) and "binary_data_size" in parameters:
        return _from_bytes(spec, binary.take(name, parameters["binary_data_size"]))
    data = given.get("data")
    while isinstance(data, list) and len(data) == 1:  # nested as deep as the shape is, or flat
        data = data[0]
    if not isinstance(data, _JSON_TYPES[spec.datatype]) or (
        spec.datatype == "BOOL" and data not in (0, 1)
    ):
        _refuse(name, "data", f"one element of type {spec.datatype}", data)
    value: Value = bool(data) if spec.datatype == "BOOL" else data  # type: ignore[assignment]
    return value


def _from_bytes(spec: TensorSpec, data: bytes) -> Value:
    if spec.datatype == "BOOL":
        if len(data) != 1 or data[0] > 1:
            _refuse(spec.name, "data", "one byte, 0 or 1", f"{len(data)} bytes")
        return data[0] == 1
    if len(data) < _LENGTH.size or len(data) != _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        _refuse(
            spec.name, "data", "one BYTES element with its length before it", f"{len(data)} bytes"
        )
    try:
        return data[_LENGTH.size :].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(
            f"inputs {spec.name}: the text must be UTF-8: {error.reason}", parameter=spec.name
        ) from None


def _refuse(name: str, what: str, wanted: str, given: object) -> None:
    raise InvalidParameterError(
        f"inputs {name}: {what} must be {wanted}; given: {str(given)[:80]}",
        parameter=name,
        value=given,
    )


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor of an answer."""

    name: str
    datatype: str
    values: Sequence[Value]

    def as_json(self) -> dict[str, Any]:
        """With its values in it."""
        return {**self._head(), "data": list(self.values)}

    def as_binary(self) -> tuple[dict[str, Any], bytes]:
        """Without them, and the bytes that follow the JSON."""
        if self.datatype == "BYTES":
            texts = [str(value).encode("utf-8") for value in self.values]
            data = b"".join(_LENGTH.pack(len(text)) + text for text in texts)
        else:
            data = struct.pack(f"<{len(self.values)}{_FORMATS[self.datatype]}", *self.values)
        return {**self._head(), "parameters": {"binary_data_size": len(data)}}, data

    def _head(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": [len(self.values)]}
