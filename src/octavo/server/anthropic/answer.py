"""The answer of /v1/messages, whole or as a stream of events."""

import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec

from octavo.server.anthropic.errors import event
from octavo.server.generation import ChoiceText
from octavo.server.openai.exchange import Exchange
from octavo.server.openai.usage import Usage

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "abort": None}


class MessagesAnswer:
    """Turns outputs into content blocks. The text of a request with one choice is one block."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._usage = Usage(exchange.request)

    async def whole(self) -> bytes:
        """The JSON body."""
        texts: list[str] = []
        last: ChoiceText | None = None
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                self._usage.count(output)
                if isinstance(output, ChoiceText):
                    texts.append(output.text)
                    last = output
        message = self._message()
        message["content"] = [_text_block("".join(texts))]
        message.update(_stop(last))
        message["usage"] = self._counts()
        return msgspec.json.encode(message)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The events, from `message_start` to `message_stop`."""
        blocks = BlockEvents()
        last: ChoiceText | None = None
        is_begun = False
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                if not is_begun:
                    is_begun = True
                    yield event("message_start", {"message": self._message()})
                self._usage.count(output)
                if isinstance(output, ChoiceText):
                    last = output
                    for frame in blocks.text(output.text):
                        yield frame
        for frame in blocks.end():
            yield frame
        yield event("message_delta", {"delta": _stop(last), "usage": self._counts()})
        yield event("message_stop", {})

    def _message(self) -> dict[str, Any]:
        """The message before anything is said."""
        return {
            "id": self._exchange.response_id,
            "type": "message",
            "role": "assistant",
            "model": self._exchange.model.names[0],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._counts(),
        }

    def _counts(self) -> dict[str, int]:
        """Tokens so far. Those read from the cache are known, and taken out of the input, at the end."""
        cached = self._usage.num_cached_tokens
        return {
            "input_tokens": self._exchange.request.num_prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": sum(self._usage.per_choice),
        }


class BlockEvents:
    """The events of content blocks that come one after another."""

    def __init__(self) -> None:
        self._index = 0
        self._is_open = False

    def text(self, text: str) -> Iterator[bytes]:
        """More of the text block, which begins with its first text."""
        if not text:
            return
        yield from self._open()
        yield self._event("content_block_delta", delta={"type": "text_delta", "text": text})

    def end(self) -> Iterator[bytes]:
        """The end of all blocks; an answer has at least one, if an empty one."""
        yield from self._open()
        yield self._event("content_block_stop")

    def _open(self) -> Iterator[bytes]:
        if not self._is_open:
            self._is_open = True
            yield self._event("content_block_start", content_block=_text_block(""))

    def _event(self, name: str, **fields: Any) -> bytes:
        return event(name, {"index": self._index, **fields})


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _stop(last: ChoiceText | None) -> dict[str, Any]:
    """Why the answer ended. A stop string of the request is its stop sequence."""
    reason = last.finish_reason if last else None
    sequence = last.stop_reason if last and isinstance(last.stop_reason, str) else None
    if sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
    return {"stop_reason": _STOP_REASONS.get(reason or "", "end_turn"), "stop_sequence": None}
