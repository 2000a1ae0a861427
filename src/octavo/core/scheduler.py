"""What each step computes, and what becomes of the tokens that come out.

There is no prefill and no decode phase. A sequence has known tokens and computed tokens, and each step lets
computed catch up with known, within the step's budget of tokens. Chunked prefill, decoding, and computing
again after a preemption are all this one rule.
"""

from collections.abc import Collection, Iterator

from octavo.config import SchedulingPolicy
from octavo.core.admission import (
    Limits,
    blocks_to_catch_up,
    check_request,
    shortage_of,
    tokens_left_for,
)
from octavo.core.block_pool import IntegrityError
from octavo.core.block_tables import BlockTables
from octavo.core.events import (
    Event,
    PromptLogprobsEvent,
    RequestEndEvent,
    SequenceEndEvent,
    TokenEvent,
)
from octavo.core.preemption import give_up_blocks, victims_of_growth, victims_of_priority
from octavo.core.request import FinishReason, Request, StopRule
from octavo.core.sequence import RankedSequences, Sequence, SequenceStatus
from octavo.core.steady import SteadyDecode, all_decode
from octavo.core.step import BlockCopy, SampledToken, SeqId, SeqStep, StepPlan, StepResult
from octavo.core.usage import KvUsage
from octavo.errors import InvalidParameterError, RequestFailedError


class Scheduler:
    """Owner of all open requests. `schedule` and `commit` take turns; `add` and `abort` may come any time.

    Every request that `add` accepts finishes if the two are called often enough: a decoding sequence gets a
    token in every step, and the best-ranked sequence gives way to nobody of its class, so it ends; then
    another is the best-ranked.
    """

    def __init__(
        self,
        tables: BlockTables,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        max_model_len: int,
        policy: SchedulingPolicy,
        end_token_ids: frozenset[int],
    ) -> None:
        self._tables = tables
        self._limits = Limits(max_num_batched_tokens, max_num_seqs, max_model_len)
        self._policy = policy
        self._end_token_ids = end_token_ids
        self._requests: dict[str, Request] = {}
        self._sequences: dict[SeqId, Sequence] = {}
        self._waiting = RankedSequences()
        self._running = RankedSequences()
        self._num_arrivals = 0
        self._next_seq_id: SeqId = 0
        self._num_steps = 0
        self._num_preemptions = 0

    @property
    def has_work(self) -> bool:
        """Whether any request is open."""
        return bool(self._requests)

    @property
    def num_running(self) -> int:
        """Sequences that hold or are about to get blocks; one for a request whose prompt is not done."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for blocks or a seat: new requests, and preempted sequences."""
        return len(self._waiting)

    def usage(self) -> KvUsage:
        """How the block pool is used now. O(1)."""
        tables = self._tables
        return KvUsage(
            num_blocks_total=tables.num_blocks,
            num_blocks_referenced=tables.num_referenced,
            num_blocks_free=tables.num_free,
            num_slots_used=tables.num_slots_used,
            num_slots_referenced=tables.num_referenced * tables.block_size,
            num_blocks_saved_by_sharing=tables.num_saved_by_sharing,
            num_block_copies=tables.num_copies,
            num_preemptions=self._num_preemptions,
        )

    def add(self, request: Request) -> None:
        """Accept a request, or raise the UserError that says why it can never run; then nothing has changed."""
        if request.request_id in self._requests:
            raise InvalidParameterError(
                f"request_id must be unique among open requests; given: {request.request_id}",
                parameter="request_id",
                value=request.request_id,
            )
        check_request(request, self._limits, self._tables)
        rule = StopRule.of(
            request.params,
            self._end_token_ids,
            max_tokens=request.max_tokens(self._limits.max_model_len),
        )
        priority = request.priority if self._policy is SchedulingPolicy.PRIORITY else 0
        request.open(self._next_seq_id, priority, self._num_arrivals, rule)
        self._num_arrivals += 1
        self._next_seq_id += len(request.sequences)
        self._requests[request.request_id] = request
        self._sequences.update((sequence.seq_id, sequence) for sequence in request.sequences)
        self._waiting.add(request.sequences[0])

    def abort(self, request_id: str) -> list[Event]:
        """End a request now, also between `schedule` and `commit`. Unknown ids belong to ended requests: []."""
        request = self._requests.get(request_id)
        return [] if request is None else self._end_early(request, FinishReason.ABORT)

    def abort_sequence(self, request_id: str, index: int) -> list[Event]:
        """End one sequence that has begun to generate, as `abort` does; the last to end ends the request.

        Unknown ids, and sequences that have ended or have no token yet: [].
        """
        request = self._requests.get(request_id)
        if request is None:
            return []
        sequence = request.sequences[index]
        if sequence.status is SequenceStatus.FINISHED or sequence.num_outputs == 0:
            return []
        self._finish(sequence)
        events: list[Event] = [SequenceEndEvent(request_id, index, FinishReason.ABORT)]
        if request.is_finished:
            events.append(self._close(request))
        return events

    def schedule(self) -> StepPlan:
        """Decide the next step. Its `seqs` are empty if no request is open.

        First everything is decided, then blocks are taken: in between, none is given back. So no sequence is
        both planned and preempted, and no block is both source and destination of the step's copies.
        """
        self._make_room_to_grow()
        self._admit()
        steps: list[SeqStep] = []
        copies: list[BlockCopy] = []
        for sequence, num_tokens in self._share_budget():
            stop = sequence.num_computed + num_tokens
            copy = self._tables.grow(sequence.seq_id, stop)
            if copy is not None:
                copies.append(copy)
            steps.append(self._seq_step(sequence, stop))
        self._num_steps += 1
        return StepPlan(self._num_steps, tuple(steps), tuple(copies))

    def commit(self, plan: StepPlan, result: StepResult) -> list[Event]:
        """Take over what a runner made of the last plan. Rows of requests that ended meanwhile are ignored."""
        assert plan.step_id == self._num_steps, f"step {plan.step_id} is not the last scheduled"
        events: list[Event] = []
        first = 0
        for step in plan.seqs:
            tokens = result.tokens[first : first + len(step.samples)]
            first += len(step.samples)
            sequence = self._sequences.get(step.seq_id)
            if sequence is None:
                continue
            sequence.num_computed = step.start + len(step.token_ids)
            if step.num_prompt_logprobs is not None:
                known = self._requests[sequence.request_id].prompt_logprobs
                assert known is not None, f"{sequence.request_id} did not ask for prompt logprobs"
                known.extend(result.prompt_logprobs[step.seq_id])
            if tokens:
                self._receive(sequence, tokens, events)
        assert first == len(result.tokens), f"{len(result.tokens)} tokens for {first} samples"
        return events

    def steady_decode(self) -> SteadyDecode | None:
        """The coming steps, if the next holds no decision and no token drawn in it can end a sequence early.

        For simulations; between steps. `skip_steps` takes them.
        """
        running = list(self._running)
        if self._policy is not SchedulingPolicy.FCFS or not all_decode(running, self._tables):
            return None
        if self._waiting and self._can_enter(self._waiting.best):
            return None
        left = (self._requests[s.request_id].stop_rule.max_tokens - s.num_outputs for s in running)
        return SteadyDecode(running, min(left, default=1) - 1, self._tables)

    def skip_steps(self, steps: SteadyDecode, count: int, token_id: int) -> None:
        """Take the first `count` of `steps`, just returned, at once; every draw gives `token_id`, no end token."""
        steps.skip(count, token_id)
        self._num_steps += count

    def check_integrity(self) -> None:
        """Raise IntegrityError unless queues, tables and pool agree. Between steps; O(N)."""
        self._tables.check_integrity()
        queues = ((self._running, SequenceStatus.RUNNING), (self._waiting, SequenceStatus.WAITING))
        for queue, status in queues:
            if [s.rank for s in queue] != sorted(s.rank for s in queue):
                raise IntegrityError(f"{status.value} sequences are not in order of rank")
        queued = {s.seq_id: status for queue, status in queues for s in queue}
        for sequence in self._sequences.values():
            if queued.pop(sequence.seq_id, SequenceStatus.FOLLOWING) is not sequence.status:
                raise IntegrityError(f"sequence {sequence.seq_id} is not where its status says")
            if self._tables.num_tokens(sequence.seq_id) != sequence.num_computed:
                raise IntegrityError(f"sequence {sequence.seq_id}: its table holds another length")
        if queued:
            raise IntegrityError(f"sequences {sorted(queued)} are queued, but not open")
        if sum(s.num_seats for s in self._running) > self._limits.max_num_seqs:
            raise IntegrityError("more sequences run than there are seats")

    # schedule

    def _make_room_to_grow(self) -> None:
        num_blocks = blocks_to_catch_up(self._running, self._tables) - self._tables.num_free
        if num_blocks > 0:
            for victim in victims_of_growth(self._running, self._tables, num_blocks):
                self._preempt(victim)

    def _admit(self) -> None:
        """Let waiting sequences in, strictly in order of rank, while there is room for the first of them."""
        while self._waiting:
            candidate = self._waiting.best
            if tokens_left_for(candidate, self._running, self._limits) <= 0:
                return
            shortage = shortage_of(candidate, self._running, self._tables, self._limits)
            victims = victims_of_priority(candidate, shortage, self._running, self._tables)
            if victims is None:
                return
            for victim in victims:
                self._preempt(victim)
            self._waiting.remove(candidate)
            self._run(candidate)

    def _can_enter(self, candidate: Sequence) -> bool:
        """Whether a waiting sequence would be let in now, without victims.

        If not, it waits as long as the running ones only decode: each step leaves no more blocks than the last.
        """
        shortage = shortage_of(candidate, self._running, self._tables, self._limits)
        return max(shortage) <= 0 and tokens_left_for(candidate, self._running, self._limits) > 0

    def _preempt(self, victim: Sequence) -> None:
        self._running.remove(victim)
        give_up_blocks(victim, self._tables)
        self._waiting.add(victim)
        self._requests[victim.request_id].num_preemptions += 1
        self._num_preemptions += 1

    def _run(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.RUNNING
        self._running.add(sequence)

    def _share_budget(self) -> Iterator[tuple[Sequence, int]]:
        """How many tokens each sequence computes in this step.

        Those that need a single token go first, so that no long prompt makes a decoding sequence wait.
        """
        budget = self._limits.max_num_batched_tokens
        longer: list[Sequence] = []
        for sequence in self._running:
            if sequence.num_pending > 1:
                longer.append(sequence)
            elif budget > 0:
                budget -= 1
                yield sequence, 1
        for sequence in longer:
            if budget == 0:
                return
            chunk = self._requests[sequence.request_id].chunk_len(sequence, budget)
            budget -= chunk
            yield sequence, chunk

    def _seq_step(self, sequence: Sequence, stop: int) -> SeqStep:
        """Compute the tokens up to position `stop`; the last known one gives the logits to draw from."""
        request = self._requests[sequence.request_id]
        start = sequence.num_computed
        token_ids = sequence.token_ids
        targets = request.prompt_targets(start, stop)
        return SeqStep(
            sequence.seq_id,
            token_ids[start:stop],
            start,
            self._tables.blocks(sequence.seq_id)[:],
            request.samples_for(sequence) if stop == len(token_ids) else (),
            request.params.prompt_logprobs if targets else None,
            targets,
        )

    # commit

    def _receive(
        self, sequence: Sequence, tokens: Collection[SampledToken], events: list[Event]
    ) -> None:
        """Give the tokens drawn from one row of logits to their sequences."""
        request = self._requests[sequence.request_id]
        for token in tokens:
            if token.error is not None:
                events += self._end_early(request, FinishReason.ERROR, error=token.error)
                return
        if request.prompt_logprobs is not None:
            values = tuple(request.prompt_logprobs)
            request.prompt_logprobs = None
            events.append(PromptLogprobsEvent(request.request_id, values))
        if sequence.num_seats > 1:
            self._fork(sequence, request)
        for token in tokens:
            self._append(self._sequences[token.seq_id], request, token, events)

    def _fork(self, first: Sequence, request: Request) -> None:
        """The prompt is computed: from here on each sequence of the request is scheduled for itself."""
        first.num_seats = 1
        for follower in request.sequences[1:]:
            self._tables.fork(first.seq_id, follower.seq_id)
            follower.num_computed = first.num_computed
            self._run(follower)

    def _append(
        self, sequence: Sequence, request: Request, token: SampledToken, events: list[Event]
    ) -> None:
        finish_reason, stop_reason = request.stop_rule.finish_after(
            token.token_id, sequence.num_outputs
        )
        sequence.append(token.token_id)
        events.append(
            TokenEvent(
                request.request_id,
                sequence.rank.sample_index,
                token.token_id,
                token.logprobs,
                finish_reason,
                stop_reason,
            )
        )
        if finish_reason is not None:
            self._finish(sequence)
            if request.is_finished:
                events.append(self._close(request))

    def _end_early(
        self, request: Request, reason: FinishReason, *, error: str | None = None
    ) -> list[Event]:
        events: list[Event] = []
        for sequence in request.sequences:
            if sequence.status is not SequenceStatus.FINISHED:
                self._finish(sequence)
                events.append(
                    SequenceEndEvent(request.request_id, sequence.rank.sample_index, reason)
                )
        events.append(self._close(request, error))
        return events

    def _finish(self, sequence: Sequence) -> None:
        """Free what a sequence holds, wherever it is in its life."""
        if sequence.status is SequenceStatus.RUNNING:
            self._running.remove(sequence)
        elif sequence.status is SequenceStatus.WAITING:
            self._waiting.remove(sequence)
        self._tables.free(sequence.seq_id)
        del self._sequences[sequence.seq_id]
        sequence.status = SequenceStatus.FINISHED

    def _close(self, request: Request, error: str | None = None) -> RequestEndEvent:
        del self._requests[request.request_id]
        return RequestEndEvent(
            request.request_id,
            request.prompt_len,
            request.num_cached_tokens,
            request.num_preemptions,
            error,
            RequestFailedError.__name__ if error is not None else None,
        )
