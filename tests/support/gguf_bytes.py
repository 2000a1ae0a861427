"""A small GGUF file as named fields, to be cut and changed field by field."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

TYPE_NUMBERS = {
    "u8": 0,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "string": 8,
    "array": 9,
    "u64": 10,
}
_FORMATS = {"u8": "<B", "u32": "<I", "i32": "<i", "f32": "<f", "bool": "<B", "u64": "<Q"}


@dataclass
class GgufBytes:
    """Fields in the order of the file. Change `fields[name]`, then write `data`."""

    fields: dict[str, bytes] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return b"".join(self.fields.values())

    @property
    def boundaries(self) -> list[int]:
        """Where each field begins, and the end."""
        ends = [0]
        for part in self.fields.values():
            ends.append(ends[-1] + len(part))
        return ends

    def put(self, name: str, kind: str, value: int | float) -> None:
        """Add or change a number."""
        self.fields[name] = struct.pack(_FORMATS[kind], value)

    def put_text(self, name: str, text: str) -> None:
        """Add a string: its length, then its bytes."""
        raw = text.encode()
        self.put(f"{name} length", "u64", len(raw))
        self.fields[name] = raw

    def add_pair(self, key: str, kind: str, value: int | float | str) -> None:
        """Add a metadata pair of one value."""
        self.put_text(f"{key} key", key)
        self.put(f"{key} type", "u32", TYPE_NUMBERS[kind])
        if isinstance(value, str):
            self.put_text(f"{key} value", value)
        else:
            self.put(f"{key} value", kind, value)

    def add_array(self, key: str, kind: str, values: Sequence[str | int | float]) -> None:
        """Add a metadata pair of an array."""
        self.put_text(f"{key} key", key)
        self.put(f"{key} type", "u32", TYPE_NUMBERS["array"])
        self.put(f"{key} items type", "u32", TYPE_NUMBERS[kind])
        self.put(f"{key} count", "u64", len(values))
        for i, value in enumerate(values):
            if isinstance(value, str):
                self.put_text(f"{key} {i}", value)
            else:
                self.put(f"{key} {i}", kind, value)

    def add_tensor(self, name: str, dimensions: list[int], kind: int, offset: int) -> None:
        """Add a tensor's entry; dimensions fastest first."""
        self.put_text(f"{name} name", name)
        self.put(f"{name} n_dims", "u32", len(dimensions))
        for i, dimension in enumerate(dimensions):
            self.put(f"{name} dim{i}", "u64", dimension)
        self.put(f"{name} type", "u32", kind)
        self.put(f"{name} offset", "u64", offset)


def small_gguf(version: int = 3) -> GgufBytes:
    """Three tensors, a vocabulary of four tokens, one value of each common type."""
    file = GgufBytes()
    file.fields["magic"] = b"GGUF"
    file.put("version", "u32", version)
    file.put("tensor count", "u64", 3)
    file.put("pair count", "u64", 7)
    file.add_pair("general.architecture", "string", "llama")
    file.add_pair("general.alignment", "u32", 32)
    file.add_pair("flag", "bool", 1)
    file.add_array("tokenizer.ggml.tokens", "string", ["a", "bc", "", "δ"])
    file.add_array("tokenizer.ggml.scores", "f32", [0.0, -1.0, -2.0, -3.5])
    file.add_array("tokenizer.ggml.token_type", "i32", [1, 1, 3, 1])
    file.add_pair("big", "u64", 2**40)
    file.add_tensor("one", [4, 2], 0, 0)  # F32: 32 bytes
    file.add_tensor("two", [32, 3], 8, 32)  # Q8_0: 102 bytes
    file.add_tensor("three", [5], 1, 160)  # F16: 10 bytes
    header_len = len(file.data)
    file.fields["padding"] = bytes(-header_len % 32)
    file.fields["contents"] = bytes(i % 60 for i in range(170))
    return file
