"""Running a list of requests to their ends, in the caller's thread."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.core.sampling_params import SamplingParams
from octavo.engine.loop import Engine
from octavo.engine.messages import StepOutputs, Submit
from octavo.offline.collect import RequestCollector
from octavo.offline.interrupts import DeferredInterrupt
from octavo.offline.progress import BatchProgress, make_progress
from octavo.offline.prompts import ParsedPrompt, naming_prompt
from octavo.offline.step import take_step
from octavo.outputs import RequestOutput
from octavo.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch, complete."""

    request_id: str
    prompt: ParsedPrompt
    params: SamplingParams
    seed: int
    priority: int


class Batch:
    """Requests that run together. All are checked before any of them runs."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._collectors: dict[str, RequestCollector] = {}
        self._results: dict[str, RequestOutput] = {}

    def run(
        self, requests: Sequence[BatchRequest], use_tqdm: bool | Callable[..., Any]
    ) -> list[RequestOutput]:
        """The results, in order. Raises the UserError of the first request that cannot run; then none runs.

        Ctrl-C aborts all and raises KeyboardInterrupt. A runner that fails is an EngineDeadError; the engine is of no use
        afterwards.
        """
        with make_progress(use_tqdm, len(requests)) as progress, DeferredInterrupt() as interrupt:
            try:
                for index, request in enumerate(requests):
                    self._submit(request, index if len(requests) > 1 else None)
                while self._engine.has_work:
                    self._take(take_step(self._engine), progress)
                    interrupt.check()
            finally:
                self._engine.abort_all()  # nothing is open unless the way out is an error
        return [self._results[request.request_id] for request in requests]

    def _submit(self, request: BatchRequest, index: int | None) -> None:
        self._collectors[request.request_id] = RequestCollector(
            request.request_id, request.prompt, request.params, self._tokenizer
        )
        with naming_prompt(index):
            self._engine.check_grammar(request.params)  # so that it cannot be refused later
            self._engine.submit(
                Submit(
                    request.request_id,
                    request.prompt.token_ids.tobytes(),
                    request.params,
                    request.seed,
                    request.priority,
                    request.prompt.cache_salt,
                )
            )

    def _take(self, outputs: StepOutputs, progress: BatchProgress) -> None:
        stopped: list[str] = []
        for values in outputs.prompt_logprobs:
            self._collectors[values.request_id].add_prompt_logprobs(values)
        for output in outputs.sequences:
            if self._collectors[output.request_id].add(output):
                stopped.append(output.request_id)
        for end in outputs.ends:
            collector = self._collectors[end.request_id]
            if end.error is not None:
                logger.error("request %s failed: %s", end.request_id, end.error)
            self._results[end.request_id] = collector.output(end)
            progress.finish_request(collector.num_prompt_tokens, collector.num_output_tokens)
        if stopped:
            self._take(self._engine.abort(stopped), progress)
