"""Where tokens meet text: prompts go to the engine, what comes back is text, choice by choice."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from octavo.core.beam_search import BeamSearchParams
from octavo.core.sampling_params import SamplingParams
from octavo.engine.client import EngineClient
from octavo.engine.messages import PromptLogprobs, RequestEnd, SequenceOutput, TokenLogprob
from octavo.server.metrics import ChoiceClock, Metrics
from octavo.server.terms import Terms
from octavo.text.output_text import OutputText
from octavo.text.tokenizer import Tokenizer

_MERGE_QUEUE_SIZE = 256
"""Outputs of several prompts that may wait for a slow reader."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, checked and ready to submit."""

    token_ids: list[int]
    params: SamplingParams
    """With `max_tokens` set."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One HTTP request for text: prompts that share an id and terms."""

    request_id: str
    prompts: Sequence[Prompt]
    terms: Terms
    n: int
    """Choices of each prompt in the answer: all that are made, or the best of them."""
    wants_kv_usage: bool
    """Whether the answer is to say what it cost in pages."""
    beams: BeamSearchParams | None
    """Search for the most likely answers instead of drawing tokens."""
    arrived: float
    """`time.perf_counter()` when the body had been read."""

    @property
    def num_samples(self) -> int:
        """Choices that are made of each prompt."""
        return self.prompts[0].params.n

    @property
    def num_prompt_tokens(self) -> int:
        """Over all prompts."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)


@dataclass(frozen=True, slots=True)
class ChoiceText:
    """What one step added to one choice. `index` counts choices prompt by prompt: i * n + j."""

    index: int
    text: str
    token_ids: list[int]
    """Without what a stop string cut off."""
    logprobs: list[TokenLogprob] | None
    finish_reason: str | None
    """Set on the last of a choice: stop, length or abort."""
    stop_reason: int | str | None


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Log-probabilities of a prompt, before its first token."""

    prompt_index: int
    values: list[TokenLogprob]


@dataclass(frozen=True, slots=True)
class PromptEnd:
    """All choices of a prompt have ended."""

    prompt_index: int
    num_cached_tokens: int
    end: RequestEnd | None
    """The engine's last word; None if nobody waited for it."""
    num_dropped_tokens: int = 0
    """Tokens of choices that were made and are not in the answer."""


Output: TypeAlias = ChoiceText | PromptScores | PromptEnd


class Generator:
    """Generates text with one engine. Leaving an iteration early frees what the request holds."""

    def __init__(self, client: EngineClient, tokenizer: Tokenizer, metrics: Metrics) -> None:
        self._client = client
        self._tokenizer = tokenizer
        self._metrics = metrics

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Output, None]:
        """Outputs of all prompts as they come. Raises what the engine says of any of them."""
        if len(request.prompts) == 1:
            outputs = self._generate_one(request, 0)
        else:
            outputs = self._generate_many(request)
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                yield output

    async def _generate_many(self, request: GenerationRequest) -> AsyncGenerator[Output, None]:
        merged: asyncio.Queue[Output | BaseException | None] = asyncio.Queue(_MERGE_QUEUE_SIZE)
        tasks = [
            asyncio.ensure_future(self._pump(request, index, merged))
            for index in range(len(request.prompts))
        ]
        try:
            num_open = len(tasks)
            while num_open:
                output = await merged.get()
                if isinstance(output, BaseException):
                    raise output
                if output is None:
                    num_open -= 1
                else:
                    yield output
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(
        self,
        request: GenerationRequest,
        index: int,
        merged: "asyncio.Queue[Output | BaseException | None]",
    ) -> None:
        try:
            async with contextlib.aclosing(self._generate_one(request, index)) as outputs:
                async for output in outputs:
                    await merged.put(output)
        except Exception as error:  # noqa: BLE001 - raised again by the reader of the queue
            await merged.put(error)
        else:
            await merged.put(None)

    async def _generate_one(
        self, request: GenerationRequest, prompt_index: int
    ) -> AsyncGenerator[Output, None]:
        prompt = request.prompts[prompt_index]
        choices = _Choices(prompt, prompt_index, self._tokenizer, self._metrics, request.arrived)
        reason = "abort"
        try:
            async with self._client.generate(
                f"{request.request_id}-{prompt_index}",
                prompt.token_ids,
                prompt.params,
                priority=request.terms.priority,
                cache_salt=request.terms.cache_salt,
                wants_kv_usage=request.wants_kv_usage,
                tenant=request.terms.tenant,
                timeout_s=request.terms.seconds_left,
            ) as outputs:
                async for output in outputs:
                    if isinstance(output, SequenceOutput):
                        text = choices.add(output)
                        if text is not None:
                            if text.finish_reason is not None and output.finish_reason is None:
                                # By a stop string, which the engine does not know.
                                outputs.abort_sequence(output.index)
                            yield text
                            # Only now has it been taken: a reader that never came back has aborted.
                            choices.count(text)
                        if choices.cut_short and not request.wants_kv_usage:
                            # The engine's last word would come a step later.
                            yield choices.prompt_end(outputs.num_cached_tokens, None)
                            return
                    elif isinstance(output, PromptLogprobs):
                        yield PromptScores(prompt_index, output.values)
                    elif isinstance(output, RequestEnd):
                        yield choices.prompt_end(output.num_cached_tokens, output)
        except Exception:
            reason = "error"
            raise
        finally:
            choices.end(reason)


class _Choices:
    """The choices of one prompt."""

    def __init__(
        self,
        prompt: Prompt,
        prompt_index: int,
        tokenizer: Tokenizer,
        metrics: Metrics,
        arrived: float,
    ) -> None:
        n = prompt.params.n
        self._prompt = prompt
        self._prompt_index = prompt_index
        self._metrics = metrics
        self._first_index = prompt_index * n
        self._texts = [OutputText(tokenizer, prompt.params, prompt.token_ids) for _ in range(n)]
        self._clocks = [ChoiceClock(metrics, arrived) for _ in range(n)]
        self._num_open = n
        self._num_cut = 0
        self._ended = [False] * n

    @property
    def cut_short(self) -> bool:
        """Whether all have ended, at least one by a stop string that the engine does not know of."""
        return self._num_open == 0 and self._num_cut > 0

    def add(self, output: SequenceOutput) -> ChoiceText | None:
        """The text of new tokens; None for a choice that has ended, or that has failed."""
        if self._ended[output.index] or output.finish_reason == "error":
            return None  # a failure is told once for the whole request
        if output.token_ids:
            self._clocks[output.index].tokens(len(output.token_ids))
        delta = self._texts[output.index].add(
            output.token_ids, output.finish_reason, output.stop_reason
        )
        if delta.finish_reason is not None:
            self._ended[output.index] = True
            self._num_open -= 1
            self._num_cut += output.finish_reason is None
        return ChoiceText(
            index=self._first_index + output.index,
            text=delta.text,
            token_ids=output.token_ids[: delta.num_tokens],
            logprobs=None if output.logprobs is None else output.logprobs[: delta.num_tokens],
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason,
        )

    def count(self, text: ChoiceText) -> None:
        """Count the end of a choice, if this was its last text."""
        if text.finish_reason is not None:
            self._clocks[text.index - self._first_index].end(text.finish_reason)

    def prompt_end(self, num_cached_tokens: int, end: RequestEnd | None) -> PromptEnd:
        """All have ended, and none has failed."""
        computed = len(self._prompt.token_ids) - num_cached_tokens
        self._metrics.prefill_computed_tokens.observe(computed)
        return PromptEnd(self._prompt_index, num_cached_tokens, end)

    def end(self, reason: str) -> None:
        """Count the choices that have not ended as ended by `reason`."""
        for clock in self._clocks:
            clock.end(reason)
        metrics, params = self._metrics, self._prompt.params
        metrics.prompt_tokens.observe(len(self._prompt.token_ids))
        metrics.max_generation_tokens.observe(max(clock.num_tokens for clock in self._clocks))
        metrics.params_n.observe(params.n)
        metrics.params_max_tokens.observe(params.max_tokens or 0)


def arrival_time() -> float:
    """Now, on the clock of `GenerationRequest.arrived`."""
    return time.perf_counter()
