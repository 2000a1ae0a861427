"""The content blocks of a message and the events that tell of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from pydantic_core import from_json

from octavo.text.answer.parts import CallArguments, CallStart, Content, Part, Reasoning

BlockEvent: TypeAlias = tuple[str, dict[str, Any]]
"""Name and fields."""
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
"""How more of a block is told: the type of its delta, and the field that has the text."""


class ContentBlocks:
    """Blocks come one after another. The same parts give the same blocks, however they are cut."""

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self.blocks: list[dict[str, Any]] = []
        """Whole, but for the last one while it is open."""
        self._texts: list[str] = []
        """Of the last block."""
        self._is_open = False

    @property
    def has_calls(self) -> bool:
        """Whether tools are to be called."""
        return any(block["type"] == "tool_use" for block in self.blocks)

    def add(self, parts: Iterable[Part]) -> Iterator[BlockEvent]:
        """What these parts add."""
        for part in parts:
            if isinstance(part, CallStart):
                call = {"type": "tool_use", "id": self._new_call_id(), "name": part.name}
                yield from self._begin({**call, "input": {}})
            elif isinstance(part, Content) and not self._is_in("text"):
                yield from self._begin({"type": "text", "text": ""})
            elif isinstance(part, Reasoning) and not self._is_in("thinking"):
                # Nobody checks thoughts that come back: they are signed with nothing.
                yield from self._begin({"type": "thinking", "thinking": "", "signature": ""})
            if isinstance(part, Content | Reasoning | CallArguments):
                yield self._more(part.text)

    def finish(self) -> Iterator[BlockEvent]:
        """The end of all blocks; an answer has at least one, if an empty one."""
        if not self.blocks:
            yield from self._begin({"type": "text", "text": ""})
        yield from self._end()

    def _is_in(self, kind: str) -> bool:
        return self._is_open and bool(self.blocks[-1]["type"] == kind)

    def _begin(self, block: dict[str, Any]) -> Iterator[BlockEvent]:
        yield from self._end()
        self.blocks.append(block)
        self._is_open = True
        yield self._event("content_block_start", content_block=dict(block))

    def _more(self, text: str) -> BlockEvent:
        self._texts.append(text)
        kind, field = _DELTAS[self.blocks[-1]["type"]]
        return self._event("content_block_delta", delta={"type": kind, field: text})

    def _end(self) -> Iterator[BlockEvent]:
        if not self._is_open:
            return
        block, text = self.blocks[-1], "".join(self._texts)
        if block["type"] == "tool_use":
            block["input"] = _input(text)
        else:
            block[block["type"]] = text
        self._texts, self._is_open = [], False
        yield self._event("content_block_stop")

    def _event(self, name: str, **fields: Any) -> BlockEvent:
        return name, {"index": len(self.blocks) - 1, **fields}


def _input(arguments: str) -> dict[str, Any]:
    """The arguments of a call, which the token limit may have cut: then as far as they go, as clients read streams."""
    try:
        value = from_json(arguments, allow_partial=True) if arguments else {}
    except ValueError:  # a model may write anything
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}
