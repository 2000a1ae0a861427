"""The answer of /v1/chat/completions, whole or as a stream."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.engine.messages import TokenLogprob
from octavo.server.generation import ChoiceText, Output, PromptScores
from octavo.server.openai.answer_plan import AnswerPlan
from octavo.server.openai.chat_parts import ChatParts
from octavo.server.openai.exchange import Exchange
from octavo.server.openai.frames import FrameWriter
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.openai.requests import ChatRequest
from octavo.server.openai.usage import Usage
from octavo.text.answer.parts import Content, Part

ROLE = "assistant"
_ENCODE = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Choice:
    """What a choice has become so far."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class ChatAnswer:
    """Turns outputs into messages. `echo` stands in front of each of them."""

    def __init__(self, exchange: Exchange, body: ChatRequest, plan: AnswerPlan, echo: str) -> None:
        self._exchange = exchange
        self._body = body
        self._echo = echo
        self._usage = Usage(exchange.request)
        self._scores: list[TokenLogprob] = []
        self._names = exchange.names
        self._parsers = [plan.parser() for _ in self._usage.per_choice]
        self._parts = [
            ChatParts(plan.new_call_id, includes_reasoning=plan.includes_reasoning)
            for _ in self._usage.per_choice
        ]

    async def whole(self) -> bytes:
        """The JSON body."""
        choices = [_Choice(texts=[self._echo]) for _ in self._usage.per_choice]
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                text = self._take(output)
                if text is not None:
                    choice = choices[text.index]
                    choice.texts.append(text.text)
                    choice.token_ids += text.token_ids
                    choice.logprobs += text.logprobs or []
                    choice.finish_reason = text.finish_reason
                    choice.stop_reason = text.stop_reason
        body = self._exchange.envelope("chat.completion")
        body["choices"] = [self._whole_choice(i, choice) for i, choice in enumerate(choices)]
        body["usage"] = self._usage.total()
        if self._body.prompt_logprobs is not None:
            body["prompt_logprobs"] = prompt_logprobs(
                self._scores, self._exchange.model.assets.tokenizer
            )
        if self._body.return_token_ids:
            body["prompt_token_ids"] = self._exchange.request.prompts[0].token_ids
        return msgspec.json.encode(body)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The chunks: the role of each choice, then text as it comes, with interleaved choices."""
        writer = FrameWriter(self._exchange.envelope("chat.completion.chunk"))
        is_plain = not (
            self._body.logprobs
            or self._body.return_token_ids
            or self._exchange.includes_continuous_usage
            or any(self._parsers)
        )
        is_begun = False
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                if not is_begun:
                    is_begun = True
                    for index in range(len(self._usage.per_choice)):
                        for frame in self._first_frames(writer, index):
                            yield frame
                text = self._take(output)
                if text is None:
                    continue
                if is_plain and text.finish_reason is None:
                    if text.text:
                        yield writer.encoded(_plain_chunk(text))
                elif self._says_something(text, delta := self._delta(text)):
                    yield writer.frame(self._chunk(text, delta), self._usage_so_far(text.index))
        if self._exchange.includes_usage:
            yield writer.usage(self._usage.total())

    def _take(self, output: Output) -> ChoiceText | None:
        """Count an output and keep what is not text. Returns what concerns a choice."""
        self._usage.count(output)
        if isinstance(output, PromptScores):
            self._scores = output.values
        return output if isinstance(output, ChoiceText) else None

    def _first_frames(self, writer: FrameWriter, index: int) -> list[bytes]:
        extra = self._usage_so_far(index) or {}
        if self._body.return_token_ids:
            extra["prompt_token_ids"] = self._exchange.request.prompts[0].token_ids
        deltas: list[dict[str, Any]] = [{"role": ROLE, "content": ""}]
        if self._echo:
            deltas.append({"content": self._echo})
        return [
            writer.frame(
                {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}, extra
            )
            for delta in deltas
        ]

    def _delta(self, text: ChoiceText) -> dict[str, Any]:
        parser = self._parsers[text.index]
        if parser is None:
            return {"content": text.text} if text.text else {}
        parts = parser.add(text.text, is_last=text.finish_reason is not None)
        return self._parts[text.index].members(parts)

    def _says_something(self, text: ChoiceText, delta: dict[str, Any]) -> bool:
        wants_tokens = self._body.logprobs or self._body.return_token_ids
        return bool(delta or text.finish_reason or (wants_tokens and text.token_ids))

    def _chunk(self, text: ChoiceText, delta: dict[str, Any]) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "index": text.index,
            "delta": delta or {"content": ""},
            "logprobs": self._logprobs(text.logprobs),
            "finish_reason": self._parts[text.index].finish_reason(text.finish_reason),
        }
        if text.finish_reason is not None:
            chunk["stop_reason"] = text.stop_reason
        if self._body.return_token_ids:
            chunk["token_ids"] = text.token_ids
        return chunk

    def _usage_so_far(self, index: int) -> dict[str, Any] | None:
        if not self._exchange.includes_continuous_usage:
            return None
        return {"usage": self._usage.of_choice(index)}

    def _whole_choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        written = self._parts[index]
        whole: dict[str, Any] = {
            "index": index,
            "message": {"role": ROLE, **written.message(self._whole_parts(index, choice))},
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": written.finish_reason(choice.finish_reason),
            "stop_reason": choice.stop_reason,
        }
        if self._body.return_token_ids:
            whole["token_ids"] = choice.token_ids
        return whole

    def _whole_parts(self, index: int, choice: _Choice) -> list[Part]:
        text, parser = "".join(choice.texts), self._parsers[index]
        parts: list[Part] = [Content(text)]
        if parser is not None:
            parts = [Content(self._echo)] if self._echo else []
            parts += parser.add(text[len(self._echo) :], is_last=True)
        return parts

    def _logprobs(self, values: list[TokenLogprob] | None) -> dict[str, Any] | None:
        return chat_logprobs(values or [], self._names) if self._body.logprobs else None


def _plain_chunk(text: ChoiceText) -> bytes:
    """The choice of a chunk that carries text and nothing else: most of all chunks."""
    return (
        b'{"index":%d,"delta":{"content":' % text.index
        + _ENCODE(text.text)
        + b'},"logprobs":null,"finish_reason":null}'
    )
