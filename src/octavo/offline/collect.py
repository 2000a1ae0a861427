"""What the engine says of one request, put together as a `RequestOutput`."""

import time
from collections.abc import Sequence

from octavo.core.sampling_params import SamplingParams
from octavo.engine.messages import PromptLogprobs, RequestEnd, SequenceOutput, TokenLogprob
from octavo.offline.prompts import ParsedPrompt
from octavo.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from octavo.text.output_text import OutputText
from octavo.text.tokenizer import Tokenizer


class SequenceCollector:
    """The tokens and the text of one sequence."""

    def __init__(
        self, index: int, params: SamplingParams, text: OutputText, tokenizer: Tokenizer
    ) -> None:
        self._index = index
        self._wants_logprobs = params.logprobs is not None
        self._text = text
        self._tokenizer = tokenizer
        self._pieces: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[dict[int, Logprob]] = []
        self._finish_reason: str | None = None
        self._stop_reason: int | str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its end is known; a stop string may end it before the engine knows."""
        return self._finish_reason is not None

    @property
    def num_tokens(self) -> int:
        """Tokens of the output."""
        return len(self._token_ids)

    def add(self, output: SequenceOutput) -> None:
        """Take over new tokens. Those after a stop string are dropped."""
        if self.has_ended:
            return
        delta = self._text.add(output.token_ids, output.finish_reason, output.stop_reason)
        self._pieces.append(delta.text)
        self._token_ids += output.token_ids[: delta.num_tokens]
        for value in (output.logprobs or ())[: delta.num_tokens]:
            self._logprobs.append(logprob_dict(value, self._tokenizer))
        self._finish_reason, self._stop_reason = delta.finish_reason, delta.stop_reason

    def output(self) -> CompletionOutput:
        """The sequence so far."""
        total = None
        if self._wants_logprobs:
            pairs = zip(self._token_ids, self._logprobs, strict=True)
            total = sum(values[token_id].logprob for token_id, values in pairs)
        return CompletionOutput(
            index=self._index,
            text="".join(self._pieces),
            token_ids=self._token_ids,
            cumulative_logprob=total,
            logprobs=self._logprobs if self._wants_logprobs else None,
            finish_reason=self._finish_reason,
            stop_reason=self._stop_reason,
        )


class RequestCollector:
    """All that is said of one request."""

    def __init__(
        self, request_id: str, prompt: ParsedPrompt, params: SamplingParams, tokenizer: Tokenizer
    ) -> None:
        self.request_id = request_id
        self._prompt = prompt
        self._params = params
        self._tokenizer = tokenizer
        self._sequences = [
            SequenceCollector(
                index, params, OutputText(tokenizer, params, prompt.token_ids), tokenizer
            )
            for index in range(params.n)
        ]
        self._prompt_logprobs: Sequence[TokenLogprob] | None = None
        self._arrival = time.time()
        self._first_token: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether all sequences have ended."""
        return all(sequence.has_ended for sequence in self._sequences)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self._prompt.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(sequence.num_tokens for sequence in self._sequences)

    def add(self, output: SequenceOutput) -> bool:
        """Take over new tokens. Returns whether by them the text of the last open sequence ended, at a stop string,
        so that the engine need not go on.
        """
        if self._first_token is None:
            self._first_token = time.time()
        self._sequences[output.index].add(output)
        return output.finish_reason is None and self.has_ended

    def add_prompt_logprobs(self, values: PromptLogprobs) -> None:
        """Take over the log-probabilities of the prompt."""
        self._prompt_logprobs = values.values

    def output(self, end: RequestEnd) -> RequestOutput:
        """The result, once the engine has said its last word."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt.text,
            prompt_token_ids=self._prompt.token_ids.tolist(),
            prompt_logprobs=self._prompt_logprob_dicts(),
            outputs=[sequence.output() for sequence in self._sequences],
            finished=True,
            metrics=RequestMetrics(
                arrival_time=self._arrival,
                first_token_time=self._first_token,
                finished_time=time.time(),
                num_preemptions=end.num_preemptions,
            ),
            num_cached_tokens=end.num_cached_tokens,
            error=end.error,
        )

    def _prompt_logprob_dicts(self) -> list[dict[int, Logprob] | None] | None:
        if self._params.prompt_logprobs is None:
            return None
        values = self._prompt_logprobs or ()
        return [None, *(logprob_dict(value, self._tokenizer) for value in values)]


def logprob_dict(value: TokenLogprob, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """A position as vLLM gives it: the token itself first, then the most likely ones."""
    result = {value.token_id: _logprob(value.token_id, value.logprob, value.rank, tokenizer)}
    for rank, (token_id, logprob) in enumerate(value.top, 1):
        result.setdefault(token_id, _logprob(token_id, logprob, rank, tokenizer))
    return result


def _logprob(token_id: int, logprob: float, rank: int, tokenizer: Tokenizer) -> Logprob:
    """A model may have rows that no token of the tokenizer stands for: those have no text."""
    is_known = token_id < tokenizer.vocab_size
    return Logprob(logprob, rank, tokenizer.token_text(token_id) if is_known else None)
