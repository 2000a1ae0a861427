"""The engine: requests in, steps, outputs out. The same loop serves the engine process and `LLM`."""

import time
from collections.abc import Iterable

from octavo.core.events import (
    Event,
    PromptEvent,
    PromptLogprobsEvent,
    RequestEndEvent,
    SequenceEndEvent,
    TokenEvent,
)
from octavo.core.request import Request
from octavo.core.scheduler import Scheduler
from octavo.core.step import GrowingPool, Runner, TokenLogprobs
from octavo.engine.kv_account import KvAccount, KvAccounts
from octavo.engine.messages import (
    EngineStats,
    KvUsageReport,
    PromptComputed,
    PromptLogprobs,
    RequestEnd,
    SequenceOutput,
    StepOutputs,
    Submit,
    TokenLogprob,
    merged,
)
from octavo.engine.prompts import check_token_ids
from octavo.engine.stats import StatsCounter
from octavo.errors import EngineDeadError, QueueFullError


class Engine:
    """Joins a scheduler and a runner. Not safe to use from several threads.

    Every request that `submit` accepts ends with exactly one `RequestEnd`, from `step`, an abort or `fail`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        *,
        vocab_size: int,
        max_logprobs: int,
        max_num_queued_reqs: int,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._growing = runner if isinstance(runner, GrowingPool) else None
        self._vocab_size = vocab_size
        self._max_logprobs = max_logprobs
        self._max_num_queued_reqs = max_num_queued_reqs
        self._stats = StatsCounter(scheduler)
        self._accounts = KvAccounts(scheduler)
        self._open: dict[str, int] = {}
        """Prompt length of each open request."""

    @property
    def has_work(self) -> bool:
        """Whether any request is open."""
        return self._scheduler.has_work

    @property
    def stats(self) -> EngineStats:
        """Totals since the start, and the state now."""
        return self._stats.snapshot()

    def submit(self, submit: Submit) -> None:
        """Accept a request. Raises, before anything is touched, UserError for what can never run and QueueFullError."""
        prompt = submit.prompt()
        check_token_ids(prompt, self._vocab_size)
        max_logprobs = -1 if submit.is_beam else self._max_logprobs
        submit.params.verify(vocab_size=self._vocab_size, max_logprobs=max_logprobs)
        if self._scheduler.num_waiting >= self._max_num_queued_reqs:
            raise QueueFullError(
                f"{self._scheduler.num_waiting} requests are waiting, at most "
                f"{self._max_num_queued_reqs} may (--max-num-queued-reqs); try again later"
            )
        self._scheduler.add(
            Request(
                submit.request_id,
                prompt,
                submit.params,
                submit.seed,
                priority=submit.priority,
                cache_salt=submit.cache_salt,
            )
        )
        self._open[submit.request_id] = len(prompt)
        if submit.wants_kv_usage:
            self._accounts.open(submit.request_id)

    def abort(self, request_ids: Iterable[str]) -> StepOutputs:
        """End these requests now. Ids of requests that have ended already are skipped."""
        events = [event for name in request_ids for event in self._scheduler.abort(name)]
        return self.outputs(events)

    def abort_sequence(self, request_id: str, index: int) -> StepOutputs:
        """End one sequence now. One that has ended already is skipped."""
        return self.outputs(self._scheduler.abort_sequence(request_id, index))

    def abort_all(self) -> StepOutputs:
        """End every open request now."""
        return self.abort(list(self._open))

    def step(self) -> StepOutputs:
        """Compute one step. What the runner raises is not caught: the engine can only `fail` then."""
        start = time.perf_counter()
        plan = self._scheduler.schedule()
        self._accounts.begin_step()
        result = self._runner.run(plan)
        computed = time.perf_counter()
        events = self._scheduler.commit(plan, result)
        seconds = time.perf_counter() - start
        self._scheduler.costs.learn_step(plan.num_tokens, computed - start)
        self._stats.count_step(seconds)
        self._accounts.end_step(seconds)
        return self.outputs(events)

    def use_idle_time(self) -> bool:
        """Prepare for what may come, for some milliseconds. False: there is nothing to prepare."""
        return (self._growing is not None and self._growing.grow_pool()) or self.store_some()

    def fail(self, reason: str) -> StepOutputs:
        """The last word on every open request, after the runner has failed. The engine is of no use afterwards."""
        ends = [
            RequestEnd(name, num_tokens, error=reason, error_type=EngineDeadError.__name__)
            for name, num_tokens in self._open.items()
        ]
        self._open.clear()
        return self.report(ends)

    def report(self, ends: list[RequestEnd]) -> StepOutputs:
        """A message with these ends and the state now."""
        return StepOutputs(sequences=[], ends=ends, prompt_logprobs=[], stats=self.stats)

    def reset_prefix_cache(self) -> bool:
        """Forget all prefixes that no running request holds. Returns whether nothing is left."""
        return self._scheduler.reset_prefix_cache()

    def store_some(self) -> bool:
        """Hand some of the prefix cache over to be stored, between steps. Returns whether there was any."""
        plan = self._scheduler.saves()
        if plan is not None:
            self._runner.run(plan)
        return plan is not None

    def close(self) -> None:
        """Store what is left, then give back the runner's threads and memory."""
        while self.store_some():
            pass
        self._runner.close()

    def outputs(self, events: Iterable[Event]) -> StepOutputs:
        """What the front end is told of these events of the scheduler, each of which comes here once."""
        sequences: list[SequenceOutput] = []
        ends: list[RequestEnd] = []
        prompt_logprobs: list[PromptLogprobs] = []
        prompts: list[PromptComputed] = []
        last: SequenceOutput | None = None
        for event in events:
            if isinstance(event, TokenEvent):
                output = _token_output(event)
                if last and (last.request_id, last.index) == (output.request_id, output.index):
                    output = merged(sequences.pop(), output)
                sequences.append(output)
                last = output
            elif isinstance(event, RequestEndEvent):
                del self._open[event.request_id]
                ends.append(_request_end(event, self._accounts.close(event.request_id)))
            elif isinstance(event, SequenceEndEvent):
                sequences.append(
                    SequenceOutput(
                        event.request_id, event.index, [], finish_reason=event.finish_reason.value
                    )
                )
            elif isinstance(event, PromptEvent):
                self._stats.count_prompt(self._open[event.request_id])
                prompts.append(PromptComputed(event.request_id, event.num_cached_tokens))
            else:
                prompt_logprobs.append(_prompt_logprobs(event))
        self._stats.count_tokens(sum(len(output.token_ids) for output in sequences))
        return StepOutputs(sequences, ends, prompt_logprobs, self._stats.snapshot(), prompts)


def _token_output(event: TokenEvent) -> SequenceOutput:
    reason, logprobs = event.finish_reason, event.logprobs
    return SequenceOutput(
        event.request_id,
        event.index,
        [event.token_id],
        None if logprobs is None else [_token_logprob(logprobs)],
        None if reason is None else reason.value,
        event.stop_reason,
    )


def _token_logprob(value: TokenLogprobs) -> TokenLogprob:
    return TokenLogprob(value.token_id, value.logprob, value.rank, list(value.top))


def _prompt_logprobs(event: PromptLogprobsEvent) -> PromptLogprobs:
    return PromptLogprobs(event.request_id, [_token_logprob(value) for value in event.values])


def _request_end(event: RequestEndEvent, account: KvAccount | None) -> RequestEnd:
    kv_usage = None
    if account is not None:
        kv_usage = KvUsageReport(account.peak_blocks, account.block_seconds)
    return RequestEnd(
        event.request_id,
        event.num_prompt_tokens,
        event.num_cached_tokens,
        event.num_preemptions,
        event.num_recomputed_tokens,
        kv_usage,
        event.error,
        event.error_type,
    )
