"""Hugging Face folders: one and many shards, and one clear error for every damage (case R51)."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.checkpoints.quants import QuantType, dequantize
from octavo.checkpoints.safetensors import read_safetensors
from octavo.errors import CheckpointError
from octavo.models.model import load_model
from support.damage import changes, damaged
from support.tiny_models import save_tiny, tiny_folder


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in several files."""
    folder = tmp_path_factory.mktemp("sharded") / "model"
    save_tiny(folder, "Llama", {}, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def pack(header: Any, data: bytes = b"", *, header_len: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if header_len is None else header_len).to_bytes(8, "little") + raw + data


def entry(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    start = time.perf_counter()
    with pytest.raises(CheckpointError) as caught:
        read_safetensors(path)
    assert time.perf_counter() - start < 1
    assert str(path) in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_tensors_equal_the_safetensors_package() -> None:
    path = tiny_folder("gemma3") / "model.safetensors"
    tensors = read_safetensors(path)
    expected = safetensors.numpy.load_file(path)
    assert set(tensors) == set(expected)
    for name, values in expected.items():
        tensor = tensors[name]
        assert (tensor.quant, tensor.shape, tensor.file) == (QuantType.F32, values.shape, path)
        np.testing.assert_array_equal(
            dequantize(tensor.quant, tensor.data).reshape(tensor.shape), values
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    save_file({"x": values, "y": torch.ones(3)}, tmp_path / "x.safetensors")
    tensor = read_safetensors(tmp_path / "x.safetensors")["x"]
    np.testing.assert_array_equal(
        dequantize(tensor.quant, tensor.data), values.to(torch.float32).numpy()
    )


def test_shards_are_one_model(sharded: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path / "single", "Llama", {})
    single, many = load_model(tmp_path / "single"), load_model(sharded)
    assert set(single.weights) == set(many.weights)
    for name, weight in single.weights.items():
        np.testing.assert_array_equal(weight.to_float32(), many.weights[name].to_float32())


def test_every_cut_is_refused(tmp_path: Path) -> None:
    data = pack({"a": entry(), "b": entry("F16", [4], [24, 32])}, bytes(32))
    for cut in range(len(data)):
        problem = refusal(tmp_path / "cut.safetensors", data[:cut])
        assert "cut off" in problem or "empty" in problem, f"cut at {cut}: {problem}"


MALFORMED: dict[str, tuple[bytes, str]] = {
    "header length 2^63": (pack({}, header_len=2**63), "header length: must be at most"),
    "header length past the end": (pack({}, header_len=99), "header: the file is cut off"),
    "not JSON": (pack(b"{'a'}"), "header: not valid JSON"),
    "not UTF-8": (pack(b'{"\xff":1}'), "header: not valid JSON"),
    "a list": (pack([1]), "header: must hold a JSON object"),
    "deeper than the parser": (pack(b'{"a":' * 200_000), "header: not valid JSON"),
    "a number of 10,000 digits": (pack(b'{"a":' + b"9" * 10_000 + b"}"), "header: not valid JSON"),
    "tensor twice": (
        pack(b'{"a":{"dtype":"F32"},"a":{"dtype":"F16"}}'),
        "header: not valid JSON: the key 'a' appears twice",
    ),
    "entry not an object": (pack({"a": 3}), "tensor a: must be an object"),
    "no dtype": (pack({"a": {}}), "tensor a dtype: None is not supported"),
    "unknown dtype": (
        pack({"a": entry("F8_E4M3")}, bytes(24)),
        "tensor a dtype: 'F8_E4M3' is not supported; supported are F32, F16, BF16",
    ),
    "dtype a list": (pack({"a": entry(["F32"])}, bytes(24)), "tensor a dtype: ['F32'] is not"),
    "shape missing": (pack({"a": entry(shape=None)}, bytes(24)), "tensor a shape: must be"),
    "shape negative": (pack({"a": entry(shape=[-2, -3])}, bytes(24)), "tensor a shape: must be"),
    "shape with 0": (pack({"a": entry(shape=[0, 3], offsets=[0, 0])}), "tensor a shape: must be"),
    "shape of bools": (pack({"a": entry(shape=[True, 6])}, bytes(24)), "tensor a shape: must be"),
    "shape of floats": (pack({"a": entry(shape=[2.0, 3])}, bytes(24)), "tensor a shape: must be"),
    "shape of 9": (pack({"a": entry(shape=[1] * 9)}, bytes(24)), "tensor a shape: must be"),
    "shape that overflows": (
        pack({"a": entry(shape=[2**62, 2**62])}, bytes(24)),
        "tensor a data_offsets: [4611686018427387904, 4611686018427387904] of F32 take",
    ),
    "shape and bytes differ": (
        pack({"a": entry(shape=[2, 4])}, bytes(24)),
        "tensor a data_offsets: [2, 4] of F32 take 32 bytes; given: [0, 24]",
    ),
    "offsets reversed": (pack({"a": entry(offsets=[24, 0])}, bytes(24)), "tensor a data_offsets"),
    "one offset": (
        pack({"a": entry(offsets=[0])}, bytes(24)),
        "tensor a data_offsets: must be two",
    ),
    "hole": (
        pack({"a": entry(), "b": entry(offsets=[28, 52])}, bytes(52)),
        "tensor b data_offsets: must begin at 24, where tensor a ends; given: 28",
    ),
    "overlap": (
        pack({"a": entry(), "b": entry(offsets=[20, 44])}, bytes(44)),
        "tensor b data_offsets: must begin at 24",
    ),
    "past the end": (pack({"a": entry()}, bytes(23)), "tensor a: the file is cut off"),
    "bytes left over": (pack({"a": entry()}, bytes(25)), "1 bytes after the last tensor"),
    "Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\nsize 9\n",
        "this is a Git LFS",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    data, expected = MALFORMED[name]
    assert refusal(tmp_path / "model.safetensors", data).startswith(expected)


SMALL = pack({"a": entry(), "b": entry("F16", [4], [24, 32])}, bytes(32))


@settings(max_examples=300, deadline=None)
@given(changes(len(SMALL) - 32, most=3))
def test_random_bytes_in_the_header_never_crash(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(damaged(SMALL, damage))
    try:
        read_safetensors(path)
    except CheckpointError as error:
        assert str(path) in str(error)


def edit_index(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))

    return edit


def remove_weights(folder: Path) -> None:
    for file in folder.glob("model*"):
        file.unlink()


def first_shard(folder: Path) -> Path:
    return min(folder.glob("*-00001-of-*.safetensors"))


DAMAGED_FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "shard missing": (
        lambda folder: first_shard(folder).unlink(),
        r"model-00001-of-\d+.safetensors: No such file",
    ),
    "shard cut": (
        lambda folder: first_shard(folder).write_bytes(first_shard(folder).read_bytes()[:-9]),
        r"model-00001-of-\d+.safetensors: tensor \S+: the file is cut off",
    ),
    "tensor not indexed": (
        edit_index(lambda index: index.pop("model.norm.weight")),
        r"index.json: tensor model.norm.weight is in \S+, but the index does not have it",
    ),
    "tensor indexed elsewhere": (
        edit_index(
            lambda index: index.update({"model.norm.weight": index["model.embed_tokens.weight"]})
        ),
        r"index.json: tensor model.norm.weight is in \S+, but the index says it is in model-00001",
    ),
    "indexed tensor absent": (
        edit_index(lambda index: index.update({"ghost": index["model.norm.weight"]})),
        r"model-\d+-of-\d+.safetensors: tensor ghost is missing, but indexed",
    ),
    "index leads out of the folder": (
        edit_index(lambda index: index.update({"model.norm.weight": "../x.safetensors"})),
        r"weight_map: model.norm.weight must name a file in this folder; given: '../x.safetensors'",
    ),
    "index to a number": (
        edit_index(lambda index: index.update({"model.norm.weight": 3})),
        r"weight_map: model.norm.weight must name a file in this folder; given: 3",
    ),
    "index without a map": (
        lambda folder: (folder / "model.safetensors.index.json").write_text("{}"),
        r"index.json: weight_map: must be an object",
    ),
    "index not JSON": (
        lambda folder: (folder / "model.safetensors.index.json").write_text("{"),
        r"index.json: not valid JSON",
    ),
    "no weights": (
        remove_weights,
        r"neither model.safetensors nor model.safetensors.index.json is there",
    ),
    "config not JSON": (
        lambda folder: (folder / "config.json").write_text("["),
        r"config.json: not valid JSON",
    ),
    "config a list": (
        lambda folder: (folder / "config.json").write_text("[]"),
        r"config.json: must hold a JSON object",
    ),
    "no config": (
        lambda folder: (folder / "config.json").unlink(),
        r"a model is a GGUF file or a folder with a config.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGED_FOLDERS)
def test_damaged_folders_are_refused_by_name(name: str, sharded: Path, tmp_path: Path) -> None:
    damage, expected = DAMAGED_FOLDERS[name]
    folder = tmp_path / "model"
    shutil.copytree(sharded, folder)
    damage(folder)
    with pytest.raises(CheckpointError, match=expected):
        open_checkpoint(folder)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(
        CheckpointError, match=r"pytorch_model.bin is a pickle, which is never loaded"
    ):
        open_checkpoint(tmp_path)
