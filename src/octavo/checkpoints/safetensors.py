"""Hugging Face folders: config.json and one or many safetensors files, which stay memory-mapped.

A safetensors file is a 64-bit header length, a JSON header {name: {dtype, shape, data_offsets}}, and the
data. The header is checked here, whole, and the data are viewed in place: the safetensors package would
copy them, and numpy has no bfloat16 for it to return.
"""

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from octavo.checkpoints.json_object import MAX_JSON_BYTES, parse_json_object, read_json_object
from octavo.checkpoints.quants import QuantType
from octavo.checkpoints.tensor import Tensor, map_file, tensor_view
from octavo.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_DTYPES = {"F32": QuantType.F32, "F16": QuantType.F16, "BF16": QuantType.BF16}
_MAX_DIMENSIONS = 8


def read_safetensors_folder(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and all tensors of a model folder. Raises CheckpointError naming file and tensor."""
    config = read_json_object(path / "config.json")
    if (path / SINGLE_FILE).exists():
        return config, read_safetensors(path / SINGLE_FILE)
    if (path / INDEX_FILE).exists():
        return config, _read_shards(path)
    other = sorted(file.name for file in path.iterdir() if file.suffix in (".bin", ".pt", ".pth"))
    hint = (
        f"; {other[0]} is a pickle, which is never loaded: convert it to safetensors"
        if other
        else ""
    )
    raise CheckpointError(f"{path}: neither {SINGLE_FILE} nor {INDEX_FILE} is there{hint}")


_COUNTERS = "embeddings.position_ids"
"""Numbers from 0 on that old exports of encoders kept."""
_I64_BYTES = 8


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file."""
    contents = np.frombuffer(map_file(path), np.uint8)
    if len(contents) < 8:
        raise CheckpointError(
            f"{path}: header length: the file is cut off: it has {len(contents)} bytes"
        )
    header_len = int.from_bytes(contents[:8].tobytes(), "little")
    if header_len > MAX_JSON_BYTES:
        raise CheckpointError(
            f"{path}: header length: must be at most {MAX_JSON_BYTES}; given: {header_len}"
        )
    if 8 + header_len > len(contents):
        raise CheckpointError(
            f"{path}: header: the file is cut off: {header_len} bytes needed, {len(contents) - 8} left"
        )
    header = parse_json_object(contents[8 : 8 + header_len].tobytes(), f"{path}: header")
    header.pop("__metadata__", None)
    data = contents[8 + header_len :]
    entries = [_parse_entry(path, name, entry) for name, entry in header.items()]
    _check_layout(path, entries, len(data))
    return {
        name: tensor_view(name, quant, shape, data[begin:end], path)
        for name, quant, shape, begin, end in entries
        if quant is not None
    }


_Entry = tuple[str, QuantType | None, tuple[int, ...], int, int]
"""The type is None for `_COUNTERS`, which are left out."""


def _parse_entry(path: Path, name: str, entry: Any) -> _Entry:
    where = f"{path}: tensor {name}"
    if not isinstance(entry, dict):
        raise CheckpointError(f"{where}: must be an object with dtype, shape and data_offsets")
    dtype = entry.get("dtype")
    quant = _DTYPES.get(dtype) if isinstance(dtype, str) else None
    is_counter = dtype == "I64" and name.endswith(_COUNTERS)
    if quant is None and not is_counter:
        raise CheckpointError(
            f"{where} dtype: {dtype!r} is not supported; supported are {', '.join(_DTYPES)}"
        )
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _is_counts(shape) or len(shape) > _MAX_DIMENSIONS or 0 in shape:
        raise CheckpointError(
            f"{where} shape: must be up to {_MAX_DIMENSIONS} numbers of at least 1; given: {shape!r}"
        )
    if not _is_counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where} data_offsets: must be two numbers; given: {offsets!r}")
    num_bytes = _I64_BYTES if quant is None else quant.block_bytes
    for dimension in shape:
        num_bytes *= dimension
    begin, end = offsets
    if end - begin != num_bytes:
        raise CheckpointError(
            f"{where} data_offsets: {shape} of {dtype} take {num_bytes} bytes; given: {offsets}"
        )
    return name, quant, tuple(shape) or (1,), begin, end


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    """Whether it is a list of integers from 0."""
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(path: Path, entries: list[_Entry], data_len: int) -> None:
    """The tensors fill the data one after the other, without holes or overlaps, as the format demands."""
    position, previous = 0, "the header"
    for name, _, _, begin, end in sorted(entries, key=itemgetter(3)):
        if begin != position:
            raise CheckpointError(
                f"{path}: tensor {name} data_offsets: must begin at {position}, where {previous} ends; "
                f"given: {begin}"
            )
        if end > data_len:
            raise CheckpointError(
                f"{path}: tensor {name}: the file is cut off: data to byte {end} needed, {data_len} there"
            )
        position, previous = end, f"tensor {name}"
    if position != data_len:
        raise CheckpointError(
            f"{path}: {data_len - position} bytes after the last tensor belong to none"
        )


def _read_shards(path: Path) -> dict[str, Tensor]:
    """All tensors of a folder with an index, each from the file that the index names."""
    index_path = path / INDEX_FILE
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{index_path}: weight_map: must be an object that maps tensors to files"
        )
    for name, file in weight_map.items():
        if not isinstance(file, str) or file != Path(file).name:
            raise CheckpointError(
                f"{index_path}: weight_map: {name} must name a file in this folder; given: {file!r}"
            )
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(weight_map.values())):
        shard = read_safetensors(path / file)
        _check_shard(index_path, file, shard, weight_map)
        tensors |= shard
    missing = next((name for name in weight_map if name not in tensors), None)
    if missing is not None:
        raise CheckpointError(
            f"{path / weight_map[missing]}: tensor {missing} is missing, but indexed"
        )
    return tensors


def _check_shard(
    index_path: Path, file: str, shard: Mapping[str, Tensor], weight_map: Mapping[str, str]
) -> None:
    for name in shard:
        indexed = weight_map.get(name)
        if indexed != file:
            there = f"says it is in {indexed}" if indexed else "does not have it"
            raise CheckpointError(
                f"{index_path}: tensor {name} is in {file}, but the index {there}"
            )
