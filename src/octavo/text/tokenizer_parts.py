"""What a tokenizer is made of, whatever the files it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import tokenizers


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """What a model's files say about its tokenizer."""

    backend: tokenizers.Tokenizer
    vocab_size: int
    """One more than the largest id."""
    bos_token: str | None = None
    eos_token: str | None = None
    add_bos: bool | None = None
    """Whether prompts begin with BOS; None: as the backend's post-processor does."""
    add_eos: bool | None = None
    other_special_tokens: Mapping[str, str] = field(default_factory=dict)
    """Those that chat templates may print besides BOS and EOS: `unk_token`, `pad_token`, ..."""
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    """By name: `default`, and perhaps `tool_use` for chats with tools."""
