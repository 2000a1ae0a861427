"""Log-probabilities in the three forms of the API: completions, chat, and vLLM's `prompt_logprobs`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.engine.messages import TokenLogprob
from octavo.text.detokenizer import Detokenizer
from octavo.text.tokenizer import Tokenizer

FLOOR = -9999.0
"""JSON has no minus infinity."""


@dataclass(frozen=True, slots=True)
class TokenNames:
    """How tokens are written in logprobs."""

    tokenizer: Tokenizer
    as_token_ids: bool
    """`token_id:N` instead of text, which several ids may share."""

    def text(self, token_id: int) -> str:
        """The token's name in a response."""
        return f"token_id:{token_id}" if self.as_token_ids else self.tokenizer.token_text(token_id)


@dataclass(slots=True)
class CompletionLogprobs:
    """The four parallel lists of a completion; one object follows a choice through all its chunks."""

    names: TokenNames
    text: Detokenizer
    """Follows the tokens, so that offsets point into the text of the choice."""
    offset: int = 0
    """Characters of text that were complete before the next token."""
    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add_unscored(self, token_id: int) -> None:
        """The first token of a prompt: nothing precedes it."""
        self._place(token_id, self.names.text(token_id))
        self.token_logprobs.append(None)
        self.top_logprobs.append(None)

    def add(self, values: Sequence[TokenLogprob]) -> None:
        """Scored tokens."""
        for value in values:
            name = self.names.text(value.token_id)
            self._place(value.token_id, name)
            logprob = max(value.logprob, FLOOR)
            self.token_logprobs.append(logprob)
            top = {name: logprob}
            for token_id, other in value.top:
                top.setdefault(self.names.text(token_id), max(other, FLOOR))
            self.top_logprobs.append(top)

    def take(self) -> dict[str, Any]:
        """What was added since the last call, as the API has it."""
        taken = {
            "text_offset": self.text_offset,
            "token_logprobs": self.token_logprobs,
            "tokens": self.tokens,
            "top_logprobs": self.top_logprobs,
        }
        self.tokens, self.token_logprobs, self.top_logprobs, self.text_offset = [], [], [], []
        return taken

    def _place(self, token_id: int, name: str) -> None:
        self.tokens.append(name)
        self.text_offset.append(self.offset)
        self.offset += len(self.text.add((token_id,)))


def chat_logprobs(values: Sequence[TokenLogprob], names: TokenNames) -> dict[str, Any]:
    """`{"content": [...]}`; `top_logprobs` are the most likely tokens, the drawn one only if it is among them."""
    content = []
    for value in values:
        entry = _chat_entry(value.token_id, value.logprob, names)
        entry["top_logprobs"] = [_chat_entry(i, logprob, names) for i, logprob in value.top]
        content.append(entry)
    return {"content": content}


def prompt_logprobs(
    values: Sequence[TokenLogprob], tokenizer: Tokenizer
) -> list[dict[str, Any] | None]:
    """One entry a prompt token, null for the first: token id -> logprob, rank and text."""
    entries: list[dict[str, Any] | None] = [None]
    for value in values:
        entry = {str(value.token_id): _ranked(value.token_id, value.logprob, value.rank, tokenizer)}
        for rank, (token_id, logprob) in enumerate(value.top, start=1):
            entry.setdefault(str(token_id), _ranked(token_id, logprob, rank, tokenizer))
        entries.append(entry)
    return entries


def _chat_entry(token_id: int, logprob: float, names: TokenNames) -> dict[str, Any]:
    return {
        "token": names.text(token_id),
        "logprob": max(logprob, FLOOR),
        "bytes": list(names.tokenizer.token_bytes(token_id)),
    }


def _ranked(token_id: int, logprob: float, rank: int, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "logprob": max(logprob, FLOOR),
        "rank": rank,
        "decoded_token": tokenizer.token_text(token_id),
    }
