"""The answer of /v1/completions, whole or as a stream."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from octavo.server.generation import ChoiceText, Output, PromptScores
from octavo.server.openai.exchange import Exchange
from octavo.server.openai.frames import FrameWriter
from octavo.server.openai.logprobs import CompletionLogprobs, prompt_logprobs
from octavo.server.openai.requests import CompletionRequest
from octavo.server.openai.usage import Usage
from octavo.text.detokenizer import Detokenizer

_OBJECT = "text_completion"


@dataclass(slots=True)
class _Choice:
    """What a choice has become so far."""

    logprobs: CompletionLogprobs | None
    is_begun: bool = False
    is_announced: bool = False
    """Whether a chunk has carried the prompt's ids."""
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class CompletionAnswer:
    """Turns outputs into choices. `echoes` are the prompts as text, one each, if they are to be repeated."""

    def __init__(
        self, exchange: Exchange, body: CompletionRequest, echoes: Sequence[str] | None
    ) -> None:
        self._exchange = exchange
        self._body = body
        self._echoes = echoes
        self._n = exchange.request.n
        self._usage = Usage(exchange.request)
        self._scores: dict[int, PromptScores] = {}
        self._drops_output = body.max_tokens == 0
        self._choices = [_Choice(self._new_logprobs(i)) for i in range(len(self._usage.per_choice))]

    async def whole(self) -> bytes:
        """The JSON body."""
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                text = self._take(output)
                if text is not None:
                    self._add(text)
        body = self._exchange.envelope(_OBJECT)
        body["choices"] = [self._whole_choice(i) for i in range(len(self._choices))]
        body["usage"] = self._usage.total()
        return msgspec.json.encode(body)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The chunks; those of several choices are interleaved as their tokens come."""
        writer = FrameWriter(self._exchange.envelope(_OBJECT))
        continuous = self._exchange.includes_continuous_usage
        async with contextlib.aclosing(self._exchange.outputs()) as outputs:
            async for output in outputs:
                text = self._take(output)
                if text is None:
                    continue
                chunk = self._chunk(text)
                if chunk is not None:
                    usage = {"usage": self._usage.of_choice(text.index)} if continuous else None
                    yield writer.frame(chunk, usage)
        if self._exchange.includes_usage:
            yield writer.usage(self._usage.total())

    def _new_logprobs(self, index: int) -> CompletionLogprobs | None:
        if self._body.logprobs is None:
            return None
        prompt = self._exchange.request.prompts[index // self._n]
        text = Detokenizer(
            self._exchange.model.assets.tokenizer,
            prompt.token_ids if self._echoes is None else [],
            skip_special_tokens=prompt.params.skip_special_tokens,
            spaces_between_special_tokens=prompt.params.spaces_between_special_tokens,
        )
        return CompletionLogprobs(self._exchange.names, text)

    def _take(self, output: Output) -> ChoiceText | None:
        """Count an output and keep what is not text. Returns what concerns a choice."""
        if isinstance(output, PromptScores):
            self._scores[output.prompt_index] = output
        if isinstance(output, ChoiceText) and self._drops_output:
            output = replace(
                output, text="", token_ids=[], logprobs=[], finish_reason="length", stop_reason=None
            )
        self._usage.count(output)
        return output if isinstance(output, ChoiceText) else None

    def _add(self, text: ChoiceText) -> None:
        choice = self._choices[text.index]
        choice.texts.append(self._begin(text.index) + text.text)
        choice.token_ids += text.token_ids
        if choice.logprobs is not None:
            choice.logprobs.add(text.logprobs or [])
        choice.finish_reason = text.finish_reason
        choice.stop_reason = text.stop_reason

    def _begin(self, index: int) -> str:
        """What stands before the first token of a choice: the prompt, if it is echoed."""
        choice = self._choices[index]
        if choice.is_begun or self._echoes is None:
            return ""
        choice.is_begun = True
        prompt_index = index // self._n
        if choice.logprobs is not None:
            choice.logprobs.add_unscored(self._exchange.request.prompts[prompt_index].token_ids[0])
            scores = self._scores.get(prompt_index)
            choice.logprobs.add(scores.values if scores else [])
        return self._echoes[prompt_index]

    def _chunk(self, text: ChoiceText) -> dict[str, Any] | None:
        """The choice of a chunk; None if there is nothing to say yet."""
        choice = self._choices[text.index]
        content = self._begin(text.index) + text.text
        if choice.logprobs is not None:
            choice.logprobs.add(text.logprobs or [])
        wants_tokens = choice.logprobs is not None or self._body.return_token_ids
        if not content and text.finish_reason is None and not (wants_tokens and text.token_ids):
            return None
        chunk: dict[str, Any] = {
            "index": text.index,
            "text": content,
            "logprobs": None if choice.logprobs is None else choice.logprobs.take(),
            "finish_reason": text.finish_reason,
            "stop_reason": text.stop_reason,
        }
        if self._body.return_token_ids:
            chunk["token_ids"] = text.token_ids
            if not choice.is_announced:
                choice.is_announced = True
                chunk["prompt_token_ids"] = self._prompt_ids(text.index)
        return chunk

    def _whole_choice(self, index: int) -> dict[str, Any]:
        choice = self._choices[index]
        whole: dict[str, Any] = {
            "index": index,
            "text": "".join(choice.texts),
            "logprobs": None if choice.logprobs is None else choice.logprobs.take(),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        if self._body.prompt_logprobs is not None:
            scores = self._scores.get(index // self._n)
            whole["prompt_logprobs"] = prompt_logprobs(
                scores.values if scores else [], self._exchange.model.assets.tokenizer
            )
        if self._body.return_token_ids:
            whole["token_ids"] = choice.token_ids
            whole["prompt_token_ids"] = self._prompt_ids(index)
        return whole

    def _prompt_ids(self, index: int) -> list[int]:
        return self._exchange.request.prompts[index // self._n].token_ids
