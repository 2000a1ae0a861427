"""The engine: requests in, steps, outputs out. The same loop serves the engine process and `LLM`."""

import time
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from octavo.core.events import (
    Event,
    PooledEvent,
    PromptEvent,
    PromptLogprobsEvent,
    RequestEndEvent,
    SequenceEndEvent,
    TokenEvent,
)
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import GrowingPool, Runner, TokenLogprobs
from octavo.engine.deadlines import Deadlines
from octavo.engine.grammars import IDLE_WAIT_S, Grammars
from octavo.engine.kv_account import KvAccount, KvAccounts
from octavo.engine.messages import (
    EngineStats,
    KvUsageReport,
    Pooled,
    PrefixReport,
    PromptComputed,
    PromptLogprobs,
    RequestEnd,
    SequenceOutput,
    StepOutputs,
    Submit,
    TokenLogprob,
    merged,
)
from octavo.engine.prefixes import PrefixDesk
from octavo.engine.prompts import check_token_ids
from octavo.engine.queue_bounds import NO_QUEUE_LIMIT, QueueBounds
from octavo.engine.stats import StatsCounter
from octavo.errors import (
    DeadlineExceededError,
    EngineDeadError,
    OctavoError,
    QueueFullError,
    UserError,
)


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
        max_num_queued_tokens: int = NO_QUEUE_LIMIT,
        grammars: Grammars | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._growing = runner if isinstance(runner, GrowingPool) else None
        self._vocab_size = vocab_size
        self._max_logprobs = max_logprobs
        self._bounds = QueueBounds(max_num_queued_reqs, max_num_queued_tokens)
        self._deadlines = Deadlines()
        self._prefixes = PrefixDesk(scheduler.named_prefixes)
        self._grammars = grammars or Grammars(None)
        self._stats = StatsCounter(scheduler, self._bounds)
        self._accounts = KvAccounts(scheduler)
        self._open: dict[str, int] = {}
        """Prompt length of each open request."""

    @property
    def has_work(self) -> bool:
        """Whether any request is open."""
        return self._scheduler.has_work or self._grammars.num_pending > 0

    @property
    def stats(self) -> EngineStats:
        """Totals since the start, and the state now."""
        return self._stats.snapshot()

    def submit(self, submit: Submit) -> None:
        """Accept a request.

        Raises, before anything is touched, UserError for what can never run, QueueFullError and DeadlineExceededError.
        """
        prompt = submit.prompt()
        check_token_ids(prompt, self._vocab_size)
        max_logprobs = -1 if submit.is_beam else self._max_logprobs
        submit.params.verify(vocab_size=self._vocab_size, max_logprobs=max_logprobs)
        self._grammars.check_new(submit.request_id)
        self._prefixes.check(submit)
        if submit.timeout_s is not None and submit.timeout_s <= 0:
            raise DeadlineExceededError("the time given to the request had passed when it came")
        if not submit.goes_on:
            num_waiting = self._scheduler.num_waiting + self._grammars.num_pending
            self._bounds.check(num_waiting, len(prompt))
        request = Request(
            submit.request_id,
            prompt,
            submit.params,
            submit.seed,
            priority=submit.priority,
            cache_salt=submit.cache_salt,
            tenant=submit.tenant,
            pooling=submit.pooling,
        )

        def add(request: Request) -> None:
            self._scheduler.add(request)
            if submit.wants_kv_usage:
                self._accounts.open(request.request_id)

        if submit.params.structured_outputs is None:
            add(request)
        else:
            self._grammars.take(request, add)
        self._open[submit.request_id] = len(prompt)
        self._bounds.enter(submit.request_id, len(prompt))
        self._prefixes.enter(submit, prompt)
        if submit.timeout_s is not None:
            self._deadlines.add(submit.request_id, submit.timeout_s)

    def abort(self, request_ids: Iterable[str]) -> StepOutputs:
        """End these requests now. Ids of requests that have ended already are skipped."""
        names = list(request_ids)
        events: list[Event] = [end for name in names for end in self._grammars.end(name)]
        events += [event for name in names for event in self._scheduler.abort(name)]
        return self.outputs(events)

    def abort_sequence(self, request_id: str, index: int) -> StepOutputs:
        """End one sequence now. One that has ended already is skipped."""
        return self.outputs(self._scheduler.abort_sequence(request_id, index))

    def abort_all(self) -> StepOutputs:
        """End every open request now."""
        return self.abort(list(self._open))

    def step(self) -> StepOutputs:
        """Compute one step. What the runner raises is not caught: the engine can only `fail` then."""
        wait_s = 0.0 if self._scheduler.has_work else IDLE_WAIT_S
        events = self._grammars.admit(wait_s=wait_s)
        events += self._end_overdue()
        self._prefixes.expire()
        if not self._scheduler.has_work:
            return self.outputs(events)
        start = time.perf_counter()
        plan = self._grammars.masked(self._scheduler.schedule())
        self._accounts.begin_step()
        result = self._grammars.checked(self._runner.run(plan))
        computed = time.perf_counter()
        events += self._scheduler.commit(plan, result)
        seconds = time.perf_counter() - start
        self._scheduler.costs.learn_step(plan.num_tokens, computed - start)
        self._scheduler.learn(plan, seconds)
        self._stats.count_step(seconds)
        self._accounts.end_step(seconds)
        outputs = self.outputs(events)
        self._bounds.count_step(seconds)
        return outputs

    def unpin(self, name: str, cache_salt: str) -> StepOutputs:
        """Give up a named prefix, if there is one."""
        self._prefixes.unpin(name, cache_salt)
        return self.outputs(())

    def expire(self) -> StepOutputs | None:
        """Give up the named prefixes whose time has come, without a step. None if there are none."""
        return self.outputs(()) if self._prefixes.expire() else None

    @property
    def seconds_to_expiry(self) -> float | None:
        """When the first named prefix expires, from now on; None if none does."""
        return self._prefixes.seconds_to_expiry

    @property
    def prefixes(self) -> list[PrefixReport]:
        """The named prefixes."""
        return self._prefixes.all

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

    def check_grammar(self, params: SamplingParams) -> None:
        """Compile the grammar of these parameters now, if they have one. Raises the UserError that it is refused with."""
        self._grammars.compile(params)

    def close(self) -> None:
        """Store what is left, then give back the runner's threads and memory."""
        self._grammars.shutdown()
        while self.store_some():
            pass
        self._runner.close()

    def outputs(self, events: Sequence[Event]) -> StepOutputs:
        """What the front end is told of these events of the scheduler, each of which comes here once."""
        self._grammars.follow(events)
        sequences: list[SequenceOutput] = []
        ends: list[RequestEnd] = []
        prompt_logprobs: list[PromptLogprobs] = []
        prompts: list[PromptComputed] = []
        pooled: list[Pooled] = []
        last: SequenceOutput | None = None
        for event in events:
            if isinstance(event, TokenEvent):
                output = _token_output(event)
                if last and (last.request_id, last.index) == (output.request_id, output.index):
                    output = merged(sequences.pop(), output)
                sequences.append(output)
                last = output
            elif isinstance(event, RequestEndEvent):
                ends.append(self._end(event))
            elif isinstance(event, SequenceEndEvent):
                sequences.append(
                    SequenceOutput(
                        event.request_id, event.index, [], finish_reason=event.finish_reason.value
                    )
                )
            elif isinstance(event, PromptEvent):
                self._stats.count_prompt(self._open[event.request_id])
                self._bounds.begin(event.request_id)
                self._prefixes.computed(event.request_id)
                prompts.append(PromptComputed(event.request_id, event.num_cached_tokens))
            elif isinstance(event, PooledEvent):
                vector = array("f", event.vector).tobytes()
                pooled.append(Pooled(event.request_id, vector))
            else:
                prompt_logprobs.append(_prompt_logprobs(event))
        self._stats.count_tokens(sum(len(output.token_ids) for output in sequences))
        changed = self._prefixes.take_changed()
        return StepOutputs(
            sequences, ends, prompt_logprobs, self._stats.snapshot(), prompts, changed, pooled
        )

    def _end_overdue(self) -> list[Event]:
        events: list[Event] = []
        for request_id, timeout_s in self._deadlines.take_passed():
            error = DeadlineExceededError(
                f"the request had not ended {timeout_s:.3g} s after it came to the engine, when its time was over"
            )
            events += self._grammars.end(request_id, error)
            events += self._scheduler.fail(request_id, error)
            self._stats.count_timed_out()
        return events

    def _end(self, event: RequestEndEvent) -> RequestEnd:
        name = event.request_id
        del self._open[name]
        self._bounds.leave(name)
        self._deadlines.end(name)
        end = _request_end(event, self._accounts.close(name))
        error = self._prefixes.leave(name)
        return end if error is None or end.error is not None else failed(end, error)


def failed(end: RequestEnd, error: OctavoError) -> RequestEnd:
    """The end of a request, with what went wrong."""
    return msgspec.structs.replace(
        end,
        error=str(error),
        error_type=type(error).__name__,
        error_parameter=error.parameter if isinstance(error, UserError) else None,
        retry_after_s=error.retry_after_s if isinstance(error, QueueFullError) else None,
    )


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
        event.error_parameter,
    )
