"""What becomes of the tokens that come out of a step."""

from octavo.core.block_tables import BlockTables
from octavo.core.events import Event, PromptEvent, PromptLogprobsEvent, TokenEvent
from octavo.core.open_requests import OpenRequests
from octavo.core.prefix_reuse import PrefixReuse
from octavo.core.request import FinishReason, Request
from octavo.core.sequence import Sequence, SequenceStatus
from octavo.core.speculation import Speculator
from octavo.core.step import SeqStep, StepPlan, StepResult, TokenLogprobs, maker
from octavo.core.tiers import Tiers

_token_event = maker(TokenEvent)


class Receiver:
    """Gives what a runner has drawn to the sequences that it was drawn for, and ends those that are done."""

    def __init__(
        self,
        open_requests: OpenRequests,
        tables: BlockTables,
        tiers: Tiers,
        prefixes: PrefixReuse,
        speculator: Speculator | None,
    ) -> None:
        self._open = open_requests
        self._tables = tables
        self._tiers = tiers
        self._prefixes = prefixes
        self._speculator = speculator

    def take_over(self, plan: StepPlan, result: StepResult) -> list[Event]:
        """What has come of a plan. Rows of requests that ended meanwhile are ignored."""
        events: list[Event] = []
        sequences, requests = self._open.sequences, self._open.requests
        is_plain = not (result.errors or result.logprobs)
        first = last = 0
        for step in plan.seqs:
            first, last = last, last + len(step.sampling) * (step.num_drafts + 1)
            sequence = sequences.get(step.seq_id)
            if sequence is None:
                continue
            sequence.num_computed = step.start + len(step.token_ids) - step.num_drafts
            if step.num_prompt_logprobs is not None:
                known = requests[sequence.request_id].prompt_logprobs
                assert known is not None, f"{sequence.request_id} did not ask for prompt logprobs"
                known.extend(result.prompt_logprobs[step.seq_id])
            if is_plain and last == first + 1 and step.start >= sequence.prompt_len:  # nearly all
                if sequence.num_computed % self._tables.block_size == 0:
                    self._prefixes.publish(sequence)
                request = requests[sequence.request_id]
                self._append(sequence, request, result.token_ids[first], None, events)
            elif last > first:
                self._receive(sequence, step, result, first, events)
            else:
                self._prefixes.publish(sequence)
        num_tokens = len(result.token_ids)
        assert last == num_tokens, f"{num_tokens} tokens for {last} samples"
        self._tiers.land(result.failed_blocks, self._arrive)
        return events

    def _arrive(self, sequence: Sequence, num_lost: int) -> None:
        """The pages of a sequence are there, but for those of its last `num_lost` tokens, which it has to compute."""
        request = self._open.requests[sequence.request_id]
        if request.num_preemptions:
            request.num_recomputed_tokens += num_lost
        elif num_lost:
            self._prefixes.miss(request, num_lost)
        self._prefixes.publish(sequence)

    def _receive(
        self, sequence: Sequence, step: SeqStep, result: StepResult, first: int, events: list[Event]
    ) -> None:
        """Give the tokens that a step drew, from draw `first` on, to their sequences."""
        request = self._open.requests[sequence.request_id]
        if result.errors:
            for draw in range(first, first + len(step.sampling)):
                if draw in result.errors:
                    events += self._fail(request, result.errors[draw])
                    return
        self._prefixes.publish(sequence)
        if sequence.num_outputs == 0:
            events.append(PromptEvent(request.request_id, request.num_cached_tokens or 0))
        if request.prompt_logprobs is not None:
            values = tuple(request.prompt_logprobs)
            request.prompt_logprobs = None
            events.append(PromptLogprobsEvent(request.request_id, values))
        if step.num_drafts:
            self._accept(sequence, step, result, first, events)
            return
        if sequence.num_seats > 1:
            self._fork(sequence, request)
        for draw, sampling in enumerate(step.sampling, first):
            receiver = self._open.sequences[sampling.seq_id]
            logprobs = result.logprobs.get(draw)
            self._append(receiver, request, result.token_ids[draw], logprobs, events)

    def _accept(
        self, sequence: Sequence, step: SeqStep, result: StepResult, first: int, events: list[Event]
    ) -> None:
        """Take the tokens drawn after guesses that were right, and the one that shows the first to be wrong."""
        assert self._speculator is not None
        request = self._open.requests[sequence.request_id]
        guess = step.token_ids[-step.num_drafts :]
        num_right = 0
        while sequence.status is SequenceStatus.RUNNING:
            draw = first + num_right
            if draw in result.errors:
                events += self._fail(request, result.errors[draw])
                break
            token_id, logprobs = result.token_ids[draw], result.logprobs.get(draw)
            self._append(sequence, request, token_id, logprobs, events)
            if num_right == len(guess) or token_id != guess[num_right]:
                break
            num_right += 1
        self._speculator.learn(step.seq_id, len(guess), num_right)
        if sequence.status is SequenceStatus.RUNNING:
            sequence.num_computed += num_right
            self._tables.shrink(step.seq_id, sequence.num_computed)
            self._prefixes.publish(sequence)

    def _fork(self, first: Sequence, request: Request) -> None:
        """The prompt is computed: from here on each sequence of the request is scheduled for itself."""
        first.num_seats = 1
        first.sampling = first.sampling[:1]
        for follower in request.sequences[1:]:
            self._tables.fork(first.seq_id, follower.seq_id)
            follower.num_computed = first.num_computed
            self._prefixes.fork(first, follower)
            self._open.run(follower)

    def _append(
        self,
        sequence: Sequence,
        request: Request,
        token_id: int,
        logprobs: TokenLogprobs | None,
        events: list[Event],
    ) -> None:
        sequence.append(token_id)
        rule = request.stop_rule
        num_outputs = len(sequence.token_ids) - sequence.prompt_len
        finish_reason, stop_reason = rule.finish_after(token_id, num_outputs - 1)
        index = sequence.rank.sample_index
        events.append(
            _token_event(
                (request.request_id, index, token_id, logprobs, finish_reason, stop_reason)
            )
        )
        if finish_reason is not None:
            self._open.finish(sequence)
            if request.is_finished:
                events.append(self._open.close(request))

    def _fail(self, request: Request, error: str) -> list[Event]:
        for sequence in request.sequences:
            self._prefixes.discard(sequence)
        return self._open.end_early(request, FinishReason.ERROR, error=error)
