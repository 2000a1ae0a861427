"""A tokenizer from Hugging Face files: tokenizer.json and the settings beside it."""

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from octavo.checkpoints.json_object import read_json_object
from octavo.errors import CheckpointError
from octavo.text.tokenizer_parts import TokenizerParts

TOKENIZER_FILE = "tokenizer.json"
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_OTHER_ROLES = ("unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def huggingface_tokenizer_parts(file: Path) -> TokenizerParts:
    """The tokenizer of a tokenizer.json, with what its folder says. Raises CheckpointError naming the file."""
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no class of its own for files that it cannot read
        raise CheckpointError(f"{file}: {error}") from error
    folder = file.parent
    config = _settings(folder / "tokenizer_config.json")
    named = {**_settings(folder / "special_tokens_map.json"), **config}
    _add_missing_tokens(backend, folder / "tokenizer_config.json")
    vocab = backend.get_vocab(with_added_tokens=True)
    others = {role: _content(named.get(role)) for role in _OTHER_ROLES}
    return TokenizerParts(
        backend,
        1 + max(vocab.values(), default=-1),
        bos_token=_role(named, "bos", folder, vocab),
        eos_token=_role(named, "eos", folder, vocab),
        add_bos=_flag(config, "add_bos_token"),
        add_eos=_flag(config, "add_eos_token"),
        other_special_tokens={role: token for role, token in others.items() if token is not None},
        chat_templates=huggingface_chat_templates(folder),
    )


def huggingface_chat_templates(folder: Path) -> dict[str, str]:
    """The chat templates of a folder, by name. Files of their own win over tokenizer_config.json."""
    config = folder / "tokenizer_config.json"
    templates = _settings(config).get("chat_template") or {}
    if isinstance(templates, str):
        templates = {"default": templates}
    elif isinstance(templates, list):
        listed = [entry if isinstance(entry, dict) else {} for entry in templates]
        templates = {entry.get("name"): entry.get("template") for entry in listed}
    if not isinstance(templates, dict) or not all(
        isinstance(text, str) for item in templates.items() for text in item
    ):
        raise CheckpointError(
            f"{config}: chat_template must be a string or a list of named templates"
        )
    files = {"default": folder / "chat_template.jinja"}
    files |= {
        file.stem: file for file in sorted((folder / "additional_chat_templates").glob("*.jinja"))
    }
    return {**templates, **{name: _read(file) for name, file in files.items() if file.is_file()}}


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: {error}") from error


def _settings(file: Path) -> dict[str, Any]:
    return read_json_object(file) if file.is_file() else {}


def _content(token: Any) -> str | None:
    """A token is written as a string or as an object with its `content`."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _flag(config: Mapping[str, Any], name: str) -> bool | None:
    value = config.get(name)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(f"tokenizer_config.json: {name} must be a boolean; given: {value!r}")
    return value


def _role(
    named: Mapping[str, Any], role: str, folder: Path, vocab: Mapping[str, int]
) -> str | None:
    """BOS or EOS: by its text, or else by the id in config.json."""
    token = _content(named.get(f"{role}_token"))
    if token is not None or f"{role}_token" in named:
        return token
    token_id = _settings(folder / "config.json").get(f"{role}_token_id")
    if isinstance(token_id, list):
        token_id = token_id[0] if token_id else None
    return next((text for text, i in vocab.items() if i == token_id), None)


def _add_missing_tokens(backend: tokenizers.Tokenizer, config: Path) -> None:
    """Tokens that tokenizer_config.json lists and tokenizer.json lacks; their ids follow the vocabulary."""
    known = backend.get_added_tokens_decoder()
    listed = _settings(config).get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(key.isdecimal() for key in listed):
        raise CheckpointError(f"{config}: added_tokens_decoder must map ids to tokens")
    for token_id, entry in sorted(((int(k), v) for k, v in listed.items()), key=itemgetter(0)):
        if token_id in known:
            continue
        content = _content(entry)
        if content is None:
            raise CheckpointError(f"{config}: added_tokens_decoder: {token_id} has no content")
        flags = {flag: bool(entry[flag]) for flag in _TOKEN_FLAGS if flag in entry}
        backend.add_tokens([AddedToken(content, **flags)])
        if backend.token_to_id(content) != token_id:
            raise CheckpointError(
                f"{config}: added_tokens_decoder gives {content!r} the id {token_id}, but the vocabulary "
                f"leads to {backend.token_to_id(content)}"
            )
