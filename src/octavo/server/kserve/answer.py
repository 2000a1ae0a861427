"""The answer of a generation as tensors: all at once, or what each step adds."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.engine.messages import TokenLogprob
from octavo.server.generation import ChoiceText
from octavo.server.kserve.signature import Asked
from octavo.server.kserve.tensors import OutputTensor
from octavo.server.openai.logprobs import FLOOR
from octavo.server.plain_request import PlainRequest

_WHAT = "kserve.GenerateRequest"


@dataclass(slots=True)
class _Choice:
    """What a choice has become since the last tensors were made; the sum is over all of it."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    logprob_sum: float = 0.0
    num_tokens: int = 0
    finish_reason: str = "None"  # as vLLM's backend writes the absence of one


class TensorAnswer:
    """Turns outputs into tensors. Either form is used, once."""

    def __init__(self, plain: PlainRequest, asked: Asked) -> None:
        self._plain = plain
        self._asked = asked
        self._tokenizer = plain.model.assets.tokenizer
        self._choices = [_Choice() for _ in range(plain.params.n)]
        self._wants_each = "logprobs" in asked.outputs
        self._begin = "" if asked.exclude_input else asked.text_input

    async def whole(self) -> list[OutputTensor]:
        """The tensors of the complete answer."""
        async with contextlib.aclosing(self._plain.outputs(_WHAT)) as outputs:
            async for output in outputs:
                if isinstance(output, ChoiceText):
                    self._add(output)
        return self._tensors()

    async def parts(self) -> AsyncGenerator[list[OutputTensor], None]:
        """The tensors of what each step added; the sum of log-probabilities is of all so far."""
        async with contextlib.aclosing(self._plain.outputs(_WHAT)) as outputs:
            async for output in outputs:
                if isinstance(output, ChoiceText):
                    self._add(output)
                    yield self._tensors()

    def _add(self, output: ChoiceText) -> None:
        choice = self._choices[output.index]
        choice.texts.append(output.text)
        choice.num_tokens += len(output.token_ids)
        for value in output.logprobs or ():
            choice.logprob_sum += max(value.logprob, FLOOR)
            if self._wants_each:
                choice.logprobs.append(self._position(value))
        if output.finish_reason is not None:
            choice.finish_reason = output.finish_reason

    def _position(self, value: TokenLogprob) -> dict[str, Any]:
        """Token id -> its log-probability, rank and text, as vLLM's backend writes them."""
        entries = {
            str(token_id): self._entry(token_id, logprob, rank)
            for rank, (token_id, logprob) in enumerate(value.top, start=1)
        }
        drawn = self._entry(value.token_id, value.logprob, value.rank)
        return {str(value.token_id): drawn, **entries}

    def _entry(self, token_id: int, logprob: float, rank: int) -> dict[str, Any]:
        return {
            "logprob": max(logprob, FLOOR),
            "rank": rank,
            "decoded_token": self._tokenizer.token_text(token_id),
        }

    def _tensors(self) -> list[OutputTensor]:
        """All tensors that were asked for; what is added to the choices from here on belongs to the next."""
        asked, choices = self._asked.outputs, self._choices
        texts = [self._begin + "".join(choice.texts) for choice in choices]
        tensors = [OutputTensor("text_output", "BYTES", texts)]
        if "finish_reason" in asked:
            reasons = [choice.finish_reason for choice in choices]
            tensors.append(OutputTensor("finish_reason", "BYTES", reasons))
        if "cumulative_logprob" in asked:
            sums = [choice.logprob_sum for choice in choices]
            tensors.append(OutputTensor("cumulative_logprob", "FP32", sums))
        if "logprobs" in asked:
            values = [msgspec.json.encode(choice.logprobs).decode() for choice in choices]
            tensors.append(OutputTensor("logprobs", "BYTES", values))
        if "num_input_tokens" in asked:
            num_tokens = [len(self._plain.token_ids)]
            tensors.append(OutputTensor("num_input_tokens", "UINT32", num_tokens))
        if "num_output_tokens" in asked:
            counts = [choice.num_tokens for choice in choices]
            tensors.append(OutputTensor("num_output_tokens", "UINT32", counts))
        for choice in choices:
            choice.texts, choice.logprobs, choice.num_tokens = [], [], 0
        self._begin = ""
        return tensors
