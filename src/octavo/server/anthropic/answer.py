"""The answer of /v1/messages, whole or as a stream of events."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from octavo.server.anthropic.blocks import ContentBlocks
from octavo.server.anthropic.errors import event
from octavo.server.generation import ChoiceText
from octavo.server.openai.answer_plan import AnswerPlan, PartReader
from octavo.server.openai.exchange import Exchange
from octavo.server.openai.usage import Usage

_STOP_REASONS = {"length": "max_tokens", "abort": None}


class MessagesAnswer:
    """Turns outputs into content blocks: text, tool use, and thoughts if they were asked for."""

    def __init__(self, exchange: Exchange, plan: AnswerPlan) -> None:
        self._exchange = exchange
        self._usage = Usage(exchange.request)
        self._reader = PartReader(plan)
        self._blocks = ContentBlocks(plan.new_call_id)
        self._last: ChoiceText | None = None

    async def whole(self) -> bytes:
        """The JSON body."""
        texts: list[str] = []
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                self._usage.count(output)
                if isinstance(output, ChoiceText):
                    texts.append(output.text)
                    self._last = output
        # The events of blocks are made and dropped: the blocks are what stays.
        for _ in self._blocks.add(self._reader.add("".join(texts), is_last=True)):
            pass
        for _ in self._blocks.finish():
            pass
        message = self._message()
        message["content"] = self._blocks.blocks
        message.update(self._stop())
        message["usage"] = self._counts()
        return msgspec.json.encode(message)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The events, from `message_start` to `message_stop`."""
        is_begun = False
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                if not is_begun:
                    is_begun = True
                    yield event("message_start", {"message": self._message()})
                self._usage.count(output)
                if isinstance(output, ChoiceText):
                    self._last = output
                    is_last = output.finish_reason is not None
                    parts = self._reader.add(output.text, is_last=is_last)
                    for name, fields in self._blocks.add(parts):
                        yield event(name, fields)
        for name, fields in self._blocks.finish():
            yield event(name, fields)
        yield event("message_delta", {"delta": self._stop(), "usage": self._counts()})
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

    def _stop(self) -> dict[str, Any]:
        """Why the answer ended. A stop string of the request is its stop sequence."""
        last = self._last
        if last and isinstance(last.stop_reason, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": last.stop_reason}
        ended = "tool_use" if self._blocks.has_calls else "end_turn"
        reason = _STOP_REASONS.get(last.finish_reason or "", ended) if last else ended
        return {"stop_reason": reason, "stop_sequence": None}
