"""End tokens from every place that names one (case R29), and the sampling that a model's authors recommend."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.checkpoints.checkpoint import Checkpoint
from octavo.errors import CheckpointError
from octavo.models.generation import GenerationDefaults, read_generation_defaults
from octavo.models.model import load_model

VOCAB_SIZE = 100


def folder_defaults(folder: Path, config: dict[str, Any], **files: Any) -> GenerationDefaults:
    """What a folder with these files says; keywords are file names without .json."""
    for name, contents in files.items():
        (folder / f"{name}.json").write_text(json.dumps(contents))
    return read_generation_defaults(Checkpoint(folder, "safetensors", config, {}), VOCAB_SIZE)


def gguf_defaults(tokens: list[str], types: list[int], **ids: int) -> GenerationDefaults:
    metadata: dict[str, Any] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
    }
    metadata |= {f"tokenizer.ggml.{name}_token_id": value for name, value in ids.items()}
    return read_generation_defaults(Checkpoint(Path("m.gguf"), "gguf", metadata, {}), VOCAB_SIZE)


@pytest.mark.parametrize(
    ("config_eos", "generation_eos", "expected"),
    [
        (None, None, set()),
        (2, None, {2}),
        (None, 2, {2}),
        (2, 2, {2}),
        (2, [2, 32], {2, 32}),
        ([2, 7], [32], {2, 7, 32}),
        ([], 5, {5}),
        (0, None, {0}),
        (2, 100, {2}),  # no row of the head
    ],
)
def test_config_and_generation_config(
    config_eos: Any, generation_eos: Any, expected: set[int], tmp_path: Path
) -> None:
    defaults = folder_defaults(
        tmp_path,
        {} if config_eos is None else {"eos_token_id": config_eos},
        generation_config={} if generation_eos is None else {"eos_token_id": generation_eos},
    )
    assert defaults.end_token_ids == expected


def test_a_folder_without_any_of_the_files(tmp_path: Path) -> None:
    assert folder_defaults(tmp_path, {}) == GenerationDefaults(frozenset(), {})


@pytest.mark.parametrize("eos", ["<|im_end|>", {"content": "<|im_end|>", "lstrip": False}])
def test_tokenizer_config_names_the_end_by_its_text(eos: Any, tmp_path: Path) -> None:
    tokenizer_config = {
        "eos_token": eos,
        "added_tokens_decoder": {"1": {"content": "<s>"}, "9": {"content": "<|im_end|>"}},
    }
    defaults = folder_defaults(tmp_path, {"eos_token_id": 2}, tokenizer_config=tokenizer_config)
    assert defaults.end_token_ids == {2, 9}


def test_tokenizer_config_with_ids_in_tokenizer_json(tmp_path: Path) -> None:
    """transformers 5 no longer repeats the added tokens in tokenizer_config.json."""
    defaults = folder_defaults(
        tmp_path,
        {},
        tokenizer_config={"eos_token": "</s>"},
        tokenizer={
            "version": "1.0",
            "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 4, "content": "</s>"}],
            "model": {"vocab": {"a": 0}},
        },
    )
    assert defaults.end_token_ids == {4}


@pytest.mark.parametrize("tokenizer_config", [{}, {"eos_token": None}, {"eos_token": "</s>"}])
def test_tokenizer_config_that_names_nothing_known(
    tokenizer_config: dict[str, Any], tmp_path: Path
) -> None:
    assert folder_defaults(tmp_path, {}, tokenizer_config=tokenizer_config).end_token_ids == set()


@pytest.mark.parametrize("eos", ["2", 2.0, True, -1, [2, None], {"a": 1}])
def test_end_ids_of_a_wrong_kind_are_refused(eos: Any, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"generation_config.json: eos_token_id: must be a token id"
    ):
        folder_defaults(tmp_path, {}, generation_config={"eos_token_id": eos})
    with pytest.raises(CheckpointError, match=r"/config.json: eos_token_id: must be a token id"):
        folder_defaults(tmp_path, {"eos_token_id": eos}, generation_config={})


def test_gguf_ids_and_special_tokens() -> None:
    tokens = ["<unk>", "<|im_end|>", "a", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>"]
    # Ordinary text that looks like an end token (type 1) is none.
    defaults = gguf_defaults(tokens, [2, 3, 1, 4, 1, 3], eos=0, eot=2)
    assert defaults.end_token_ids == {0, 1, 2, 3, 5}
    assert gguf_defaults(["a"], [1]).end_token_ids == set()


def test_sampling_defaults_never_hold_a_length(tmp_path: Path) -> None:
    config = {
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "repetition_penalty": 1.05,
        "max_new_tokens": 2048,
        "max_length": 4096,
    }
    assert folder_defaults(tmp_path, {}, generation_config=config).sampling == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "repetition_penalty": 1.05,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_p", True),
        ("top_k", 2.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
    ],
)
def test_sampling_defaults_of_no_use_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"generation_config.json: {name}: not a value"):
        folder_defaults(tmp_path, {}, generation_config={name: value})


@pytest.mark.model
def test_default_models(smollm2_path: Path, gemma_path: Path) -> None:
    smollm2, gemma = load_model(smollm2_path), load_model(gemma_path)
    assert smollm2.generation.end_token_ids == {0, 2}  # <|endoftext|>, <|im_end|>
    assert gemma.generation.end_token_ids == {1, 106}  # <eos>, <end_of_turn>
    assert smollm2.name == "Smollm2 135M 8k Lc100K Mix1 Ep2"
