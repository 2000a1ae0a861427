"""Tokenizers and chat templates from Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from octavo.errors import CheckpointError
from octavo.text.gguf_tokenizer import gguf_tokenizer_parts
from octavo.text.tokenizer import Tokenizer, load_tokenizer
from support.tiny_tokenizers import (
    END,
    TURN,
    byte_level_metadata,
    byte_level_tokenizer,
    sentencepiece_metadata,
)


def write_folder(
    folder: Path, *, backend: Backend | None = None, prints_bos: bool = False, **files: Any
) -> Path:
    """A folder with tokenizer.json and, by name without suffix, other JSON files."""
    backend = backend or gguf_tokenizer_parts(byte_level_metadata()).backend
    if prints_bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{TURN} $A", special_tokens=[(TURN, 1)]
        )
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), "utf-8")
    return folder


@pytest.mark.parametrize("prints_bos", [True, False])
@pytest.mark.parametrize("flag", [True, False, None])
def test_bos(tmp_path: Path, prints_bos: bool, flag: bool | None) -> None:
    """R55: add_bos_token wins; without it the post-processor of tokenizer.json decides. Never twice."""
    config = {"bos_token": TURN, "eos_token": END}
    if flag is not None:
        config |= {"add_bos_token": flag}  # type: ignore[dict-item]
    folder = write_folder(tmp_path, prints_bos=prints_bos, tokenizer_config=config)
    tokenizer = load_tokenizer(folder)
    wanted = prints_bos if flag is None else flag
    assert tokenizer.encode("hello").count(1) == int(wanted)
    assert tokenizer.encode(f"{TURN}hello").count(1) == 1
    assert tokenizer.encode("hello", add_special_tokens=False).count(1) == 0
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


def test_gguf_and_folder_of_one_model_agree(tmp_path: Path) -> None:
    """R55."""
    for name, metadata in (
        ("byte-level", byte_level_metadata(add_bos_token=True)),
        ("prefixed", sentencepiece_metadata(add_dummy_prefix=True)),
        ("plain", sentencepiece_metadata(add_dummy_prefix=False)),
    ):
        parts = gguf_tokenizer_parts(metadata)
        ours = Tokenizer(parts)
        config = {"bos_token": parts.bos_token, "eos_token": parts.eos_token, "add_bos_token": True}
        folder = write_folder(tmp_path / name, backend=parts.backend, tokenizer_config=config)
        theirs = load_tokenizer(folder)
        assert theirs.special_ids == ours.special_ids
        assert theirs.vocab_size == ours.vocab_size
        for text in (
            "",
            " ",
            "a",
            " The  quick",
            "日本🎉",
            "x<tag>y",
            f"a{END}b",
            "</s> x",
            "\n\n",
        ):
            assert theirs.encode(text) == ours.encode(text)
            assert theirs.decode(theirs.encode(text)) == ours.decode(ours.encode(text))


def test_a_tokenizer_json_alone_and_with_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    alone = load_tokenizer(folder / "tokenizer.json")
    assert alone.bos_token_id is None
    assert alone.encode("he") == byte_level_tokenizer().encode("he")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": TURN}}))
    assert load_tokenizer(folder / "tokenizer.json").bos_token_id == 1


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"bos_token": TURN, "eos_token": END}},
        {"tokenizer_config": {"bos_token": {"content": TURN}, "eos_token": {"content": END}}},
        {"special_tokens_map": {"bos_token": TURN, "eos_token": {"content": END}}},
        {"config": {"bos_token_id": 1, "eos_token_id": [0, 2]}},
    ],
)
def test_where_the_roles_are_written(tmp_path: Path, files: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, **files))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 0)
    assert (tokenizer.bos_token, tokenizer.eos_token) == (TURN, END)


def test_saved_truncation_and_padding_do_not_apply(tmp_path: Path) -> None:
    backend = gguf_tokenizer_parts(byte_level_metadata()).backend
    backend.enable_truncation(4)
    backend.enable_padding(length=64, pad_id=0, pad_token=END)
    tokenizer = load_tokenizer(write_folder(tmp_path, backend=backend))
    assert tokenizer.decode(tokenizer.encode("a long text")) == "a long text"


def test_tokens_that_only_the_config_lists(tmp_path: Path) -> None:
    size = byte_level_tokenizer().vocab_size
    entry = {"content": "<|new|>", "special": True, "lstrip": False}
    folder = write_folder(
        tmp_path,
        tokenizer_config={"added_tokens_decoder": {str(size): entry, "0": {"content": END}}},
    )
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("<|new|>") == [size]
    assert tokenizer.is_special(size)
    assert tokenizer.vocab_size == size + 1
    write_folder(tmp_path, tokenizer_config={"added_tokens_decoder": {str(size + 5): entry}})
    with pytest.raises(CheckpointError, match=f"<|new|>.*{size + 5}"):
        load_tokenizer(tmp_path)


def test_broken_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file"):
        load_tokenizer(tmp_path)
    with pytest.raises(CheckpointError, match=r"missing\.gguf: no such file"):
        load_tokenizer(tmp_path / "missing.gguf")
    folder = write_folder(tmp_path)
    whole = (folder / "tokenizer.json").read_text("utf-8")
    for text in ("", "{}", "[]", whole[: len(whole) // 2], "\x00"):
        (folder / "tokenizer.json").write_text(text, "utf-8")
        with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
            load_tokenizer(folder)
    write_folder(tmp_path, tokenizer_config={"bos_token": "<nowhere>"})
    with pytest.raises(CheckpointError, match="bos_token '<nowhere>'"):
        load_tokenizer(tmp_path)


def test_chat_templates(tmp_path: Path) -> None:
    """One, a list by name, and files of their own, which win."""
    folder = write_folder(tmp_path, tokenizer_config={"chat_template": "one"})
    assert load_tokenizer(folder).chat_templates == {"default": "one"}
    listed = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    write_folder(tmp_path, tokenizer_config={"chat_template": listed})
    assert load_tokenizer(folder).chat_templates == {"default": "a", "tool_use": "b"}
    (folder / "chat_template.jinja").write_text("file", "utf-8")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("c", "utf-8")
    expected = {"default": "file", "tool_use": "b", "rag": "c"}
    assert load_tokenizer(folder).chat_templates == expected
    for wrong in (["x"], [{"name": "default"}], 7):
        write_folder(tmp_path, tokenizer_config={"chat_template": wrong})
        with pytest.raises(CheckpointError, match="chat_template"):
            load_tokenizer(folder)
