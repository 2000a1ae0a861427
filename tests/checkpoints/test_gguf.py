"""GGUF headers: what a sound file gives, and that every damaged one gives one clear error (case R51)."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings

from octavo.checkpoints.checkpoint import open_checkpoint
from octavo.checkpoints.gguf import StringArray, read_gguf
from octavo.checkpoints.quants import QuantType
from octavo.errors import CheckpointError
from support.damage import changes, damaged
from support.gguf_bytes import GgufBytes, small_gguf


def refusal(path: Path, data: bytes) -> str:
    """The error for these bytes; it names the file, comes within a second and takes little memory."""
    path.write_bytes(data)
    start, memory = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert time.perf_counter() - start < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 64 * 1024  # KiB
    assert str(path) in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("version", [2, 3])
def test_a_sound_file(version: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(small_gguf(version).data)
    checkpoint = open_checkpoint(path)
    assert (checkpoint.path, checkpoint.format) == (path, "gguf")
    metadata = checkpoint.metadata
    assert metadata["general.architecture"] == "llama"
    assert (metadata["flag"], metadata["big"]) == (True, 2**40)
    assert list(metadata["tokenizer.ggml.tokens"]) == ["a", "bc", "", "δ"]
    assert metadata["tokenizer.ggml.scores"].tolist() == [0.0, -1.0, -2.0, -3.5]
    one, two, three = checkpoint.tensors.values()
    assert (one.name, one.quant, one.shape) == ("one", QuantType.F32, (2, 4))
    assert (two.name, two.quant, two.shape) == ("two", QuantType.Q8_0, (3, 32))
    assert (three.name, three.quant, three.shape) == ("three", QuantType.F16, (5,))
    contents = np.arange(170) % 60
    np.testing.assert_array_equal(one.data.ravel(), contents[:32])
    np.testing.assert_array_equal(two.data.ravel(), contents[32 : 32 + 102])
    np.testing.assert_array_equal(three.data.ravel(), contents[160:170])
    assert two.data.shape == (3, 34)
    with pytest.raises(ValueError, match="read-only"):
        one.data[0, 0] = 1


def test_string_arrays_are_sequences(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(small_gguf().data)
    tokens = read_gguf(path)[0]["tokenizer.ggml.tokens"]
    assert isinstance(tokens, StringArray)
    assert (len(tokens), tokens[1], tokens[-1], tokens[1:3]) == (4, "bc", "δ", ["bc", ""])
    assert "δ" in tokens
    with pytest.raises(IndexError):
        tokens[4]


def test_tokens_that_are_not_utf8_are_named_when_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    file = small_gguf()
    file.fields["tokenizer.ggml.tokens 1"] = b"\xff\xff"
    path.write_bytes(file.data)
    tokens = read_gguf(path)[0]["tokenizer.ggml.tokens"]
    with pytest.raises(
        CheckpointError, match=r"model.gguf: tokenizer.ggml.tokens\[1\] is not UTF-8"
    ):
        list(tokens)


@pytest.mark.parametrize(
    "model", ["smollm2_path", pytest.param("gemma_path", marks=pytest.mark.long)]
)
@pytest.mark.model
def test_default_models_equal_the_gguf_package(model: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(model)
    metadata, tensors = read_gguf(path)
    reader = gguf.GGUFReader(path)
    for tensor in reader.tensors:
        ours = tensors.pop(tensor.name)
        assert ours.quant.value == tensor.tensor_type.value
        assert list(ours.shape) == tensor.shape.tolist()[::-1]
        np.testing.assert_array_equal(ours.data.ravel(), tensor.data.view(np.uint8).ravel())
    assert tensors == {}
    for key, field in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        ours = metadata.pop(key)
        assert (ours if isinstance(ours, (str, int, float)) else list(ours)) == field.contents()
    assert metadata == {}


@pytest.mark.parametrize(("model", "limit"), [("smollm2_path", 0.05), ("gemma_path", 0.3)])
@pytest.mark.model
def test_default_models_open_at_once(
    model: str, limit: float, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(model)
    times = []
    for _ in range(8):
        start = time.process_time()
        open_checkpoint(path)
        times.append(time.process_time() - start)
    assert min(times) < limit


def test_every_cut_is_refused(tmp_path: Path) -> None:
    file = small_gguf()
    data = file.data
    cuts = {*file.boundaries, *(len(data) * i // 100 for i in range(100))} - {len(data)}
    for cut in sorted(cuts):
        problem = refusal(tmp_path / "cut.gguf", data[:cut])
        assert "cut off" in problem or "empty" in problem, f"cut at {cut}: {problem}"


MUTATIONS: dict[str, tuple[Callable[[GgufBytes], None], str]] = {
    "version 1": (lambda f: f.put("version", "u32", 1), "version: must be 2 or 3; given: 1"),
    "version 4": (lambda f: f.put("version", "u32", 4), "version: must be 2 or 3; given: 4"),
    "version 0": (lambda f: f.put("version", "u32", 0), "version: must be 2 or 3; given: 0"),
    "big-endian": (
        lambda f: f.put("version", "u32", 3 << 24),
        "version: this is a big-endian file",
    ),
    "magic": (lambda f: f.fields.update(magic=b"GGML"), "magic: not a GGUF file"),
    "n_kv 2^63": (
        lambda f: f.put("pair count", "u64", 2**63),
        "metadata_kv_count: must be at most",
    ),
    "n_kv 60000": (
        lambda f: f.put("pair count", "u64", 60000),
        "metadata_kv_count: the file is cut",
    ),
    "n_tensors 2^63": (
        lambda f: f.put("tensor count", "u64", 2**63),
        "tensor_count: must be at most",
    ),
    "n_tensors 4": (lambda f: f.put("tensor count", "u64", 4), "tensor"),
    "key length 2^63": (
        lambda f: f.put("flag key length", "u64", 2**63),
        "metadata key 2: must be at most 65535",
    ),
    "key length past the end": (
        lambda f: f.put("flag key length", "u64", 60000),
        "metadata key 2: the file is cut off",
    ),
    "empty key": (
        lambda f: f.fields.update({"flag key length": bytes(8), "flag key": b""}),
        "metadata key 2: is empty",
    ),
    "duplicate key": (
        lambda f: f.fields.update({"flag key length": b"\3" + bytes(7), "flag key": b"big"}),
        "metadata key 6: big appears twice",
    ),
    "key not UTF-8": (
        lambda f: f.fields.update({"flag key": b"\xff\xff\xff\xff"}),
        "metadata key 2: is not UTF-8",
    ),
    "value type": (lambda f: f.put("flag type", "u32", 13), "flag: unknown value type 13"),
    "bool 2": (lambda f: f.put("flag value", "bool", 2), "flag: a bool must be 0 or 1; given: 2"),
    "string length 2^63": (
        lambda f: f.put("general.architecture value length", "u64", 2**63),
        "general.architecture: must be at most",
    ),
    "string length past the end": (
        lambda f: f.put("general.architecture value length", "u64", 100_000),
        "general.architecture: the file is cut off",
    ),
    "alignment 0": (
        lambda f: f.put("general.alignment value", "u32", 0),
        "general.alignment: must be a power of two; given: 0",
    ),
    "alignment 3": (
        lambda f: f.put("general.alignment value", "u32", 3),
        "general.alignment: must be a power of two; given: 3",
    ),
    "alignment of another type": (
        lambda f: f.put("general.alignment type", "u32", 6),
        "general.alignment: must be a power of two; given: 4.4",
    ),
    "token length 2^63": (
        lambda f: f.put("tokenizer.ggml.tokens 1 length", "u64", 2**63),
        "tokenizer.ggml.tokens: the file is cut off or damaged: string 1 of 4",
    ),
    "token length 2^64 - 1": (
        lambda f: f.put("tokenizer.ggml.tokens 3 length", "u64", 2**64 - 1),
        "tokenizer.ggml.tokens: the file is cut off or damaged: string 3 of 4",
    ),
    "token count 2^63": (
        lambda f: f.put("tokenizer.ggml.tokens count", "u64", 2**63),
        "tokenizer.ggml.tokens: must be at most",
    ),
    "score count 2^63": (
        lambda f: f.put("tokenizer.ggml.scores count", "u64", 2**63),
        "tokenizer.ggml.scores: must be at most",
    ),
    "scores of u8": (
        lambda f: f.put("tokenizer.ggml.scores items type", "u32", 0),
        "tokenizer.ggml.scores: must be an array of float32; given: uint8",
    ),
    "scores not an array": (
        lambda f: f.put("tokenizer.ggml.scores type", "u32", 4),
        "tokenizer.ggml.scores: must be an array; given: uint32",
    ),
    "tokens of numbers": (
        lambda f: f.put("tokenizer.ggml.tokens items type", "u32", 6),
        "tokenizer.ggml.tokens: must be an array of string; given: float32",
    ),
    "array of arrays": (
        lambda f: f.put("tokenizer.ggml.token_type items type", "u32", 9),
        "tokenizer.ggml.token_type: must be an array of int32 or uint32; given: array",
    ),
    "n_dims 0": (
        lambda f: f.put("one n_dims", "u32", 0),
        "tensor one dimensions: there must be 1 to 4",
    ),
    "n_dims 5": (
        lambda f: f.put("one n_dims", "u32", 5),
        "tensor one dimensions: there must be 1 to 4",
    ),
    "n_dims 2^32 - 1": (
        lambda f: f.put("one n_dims", "u32", 2**32 - 1),
        "tensor one dimensions: there must be 1 to 4; given: 4294967295",
    ),
    "dim 0": (
        lambda f: f.put("one dim1", "u64", 0),
        "tensor one dimensions: each must be at least 1; given: [4, 0]",
    ),
    "dim 2^42 + 1": (
        lambda f: f.put("one dim1", "u64", 2**42 + 1),
        "tensor one: the file is cut off",
    ),
    "dims whose bytes overflow": (
        lambda f: f.fields.update({"one dim0": b"\xff" * 8, "one dim1": b"\xff" * 8}),
        "tensor one: the file is cut off",
    ),
    "part of a block": (
        lambda f: f.put("two dim0", "u64", 33),
        "tensor two type: rows of 33 numbers are not whole Q8_0 blocks of 32",
    ),
    "unknown type": (
        lambda f: f.put("two type", "u32", 16),
        "tensor two type: IQ2_XXS (16) is not supported; supported are F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, "
        "Q8_0, Q4_K, Q5_K, Q6_K, BF16",
    ),
    "type from the future": (
        lambda f: f.put("two type", "u32", 9999),
        "tensor two type: unknown (9999) is not supported",
    ),
    "offset not aligned": (
        lambda f: f.put("two offset", "u64", 33),
        "tensor two offset: must be a multiple of 32; given: 33",
    ),
    "offset overlapping": (
        lambda f: f.put("three offset", "u64", 64),
        "tensor three offset: 64 lies inside tensor two",
    ),
    "offset past the end": (
        lambda f: f.put("three offset", "u64", 192),
        "tensor three: the file is cut off",
    ),
    "offset 2^64 - 32": (
        lambda f: f.put("three offset", "u64", 2**64 - 32),
        "tensor three: the file is cut off",
    ),
    "tensor without a name": (
        lambda f: f.fields.update({"two name length": bytes(8), "two name": b""}),
        "tensor 1 name: is empty",
    ),
    "tensor twice": (lambda f: f.fields.update({"two name": b"one"}), "tensor one appears twice"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_refused_by_name(name: str, tmp_path: Path) -> None:
    mutate, expected = MUTATIONS[name]
    file = small_gguf()
    mutate(file)
    assert refusal(tmp_path / "model.gguf", file.data).startswith(expected)


def test_scores_of_another_number_than_tokens(tmp_path: Path) -> None:
    file = GgufBytes({"magic": b"GGUF"})
    file.put("version", "u32", 3)
    file.put("tensor count", "u64", 0)
    file.put("pair count", "u64", 2)
    file.add_array("tokenizer.ggml.tokens", "string", ["a", "b"])
    file.add_array("tokenizer.ggml.scores", "f32", [1.0])
    expected = (
        "tokenizer.ggml.scores: must have as many entries as tokenizer.ggml.tokens (2); given: 1"
    )
    assert refusal(tmp_path / "model.gguf", file.data) == expected


def test_files_that_are_something_else(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n"
    assert "Git LFS pointer" in refusal(tmp_path / "lfs.gguf", pointer)
    assert "empty" in refusal(tmp_path / "empty.gguf", b"")
    assert "not a GGUF file" in refusal(tmp_path / "page.gguf", b"<!DOCTYPE html><html></html>")
    with pytest.raises(
        CheckpointError, match="folder: a model is a GGUF file or a folder with a config"
    ):
        (tmp_path / "folder").mkdir()
        open_checkpoint(tmp_path / "folder")
    with pytest.raises(CheckpointError, match=r"absent.gguf: No such file"):
        open_checkpoint(tmp_path / "absent.gguf")
    with pytest.raises(CheckpointError, match="folder: Is a directory"):
        read_gguf(tmp_path / "folder")


def test_a_huge_sparse_file_of_zeros_is_bounded(tmp_path: Path) -> None:
    """A forged count over a hole of 8 GiB: nothing walks or reads it."""
    path = tmp_path / "sparse.gguf"
    file = small_gguf()
    file.put("tokenizer.ggml.tokens count", "u64", 2**29)
    data = file.data
    with path.open("wb") as out:
        out.write(data)
        out.truncate(8 << 30)
    start = time.perf_counter()
    with pytest.raises(CheckpointError, match=r"tokenizer.ggml.tokens: must be at most"):
        open_checkpoint(path)
    assert time.perf_counter() - start < 1


SMALL = small_gguf().data


@settings(max_examples=400, deadline=None)
@given(changes(len(SMALL) - 170, most=4))
def test_random_bytes_in_the_header_never_crash(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]
) -> None:
    """Whatever the header says, the file opens or is refused; no other exception comes out."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(damaged(SMALL, damage))
    try:
        checkpoint = open_checkpoint(path)
        for value in checkpoint.metadata.values():
            if isinstance(value, StringArray):
                list(value)
    except CheckpointError as error:
        assert str(path) in str(error)
