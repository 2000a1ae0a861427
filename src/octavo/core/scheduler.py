"""What each step computes, and what becomes of the tokens that come out.

There is no prefill and no decode phase. A sequence has known tokens and computed tokens, and each step lets
computed catch up with known, within the step's budget of tokens. Chunked prefill, decoding, and computing
again after a preemption are all this one rule.
"""

from array import array
from collections.abc import Mapping
from dataclasses import replace

from octavo.config import SchedulingPolicy, SpeculationConfig
from octavo.core.admission import (
    Demand,
    Limits,
    check_request,
    fitting,
    tokens_left_for,
)
from octavo.core.block_pool import IntegrityError
from octavo.core.block_tables import BlockTables
from octavo.core.budget import share_budget
from octavo.core.costs import RestoreCosts
from octavo.core.events import Event, SequenceEndEvent
from octavo.core.governor import Governor
from octavo.core.named_prefixes import NamedPrefixes
from octavo.core.open_requests import OpenRequests
from octavo.core.preemption import Preemptor
from octavo.core.preemption_method import Method
from octavo.core.prefix_reuse import PrefixReuse
from octavo.core.receiver import Receiver
from octavo.core.request import FinishReason, Request, StopRule
from octavo.core.sequence import Sequence, SequenceStatus
from octavo.core.speculation import SpeculationCounts, Speculator
from octavo.core.steady import SteadyDecode, find_steady
from octavo.core.step import (
    NOTHING,
    BlockCopy,
    SeqId,
    SeqStep,
    StepPlan,
    StepResult,
    maker,
)
from octavo.core.tiers import SAVES_PER_STEP, Tiers
from octavo.core.usage import KvUsage
from octavo.errors import InvalidParameterError, OctavoError

_seq_step = maker(SeqStep)


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
        prefix_caching: bool = True,
        speculation: SpeculationConfig | None = None,
        governor: Governor | None = None,
        named_prefix_share: float = 0.0,
        tiers: Tiers | None = None,
    ) -> None:
        """Each may be None: `speculation` for a token of each sequence in a step, `governor` for steps of fixed size,
        `tiers` for the pool alone.
        """
        self._tables = tables
        self._tiers = Tiers(tables) if tiers is None else tiers
        self._prefixes = PrefixReuse(tables, self._tiers, enabled=prefix_caching)
        self._limits = Limits(max_num_batched_tokens, max_num_seqs, max_model_len)
        self._step_limits = self._limits
        self._governor = governor
        self.named_prefixes = NamedPrefixes(
            tables, share=named_prefix_share if prefix_caching else 0.0, max_model_len=max_model_len
        )
        """Pages that stay whatever is evicted."""
        self._policy = policy
        self._end_token_ids = end_token_ids
        self._speculator = None if speculation is None else Speculator(speculation)
        self._is_simple = policy is SchedulingPolicy.FCFS and not (
            speculation or self._tiers.is_used
        )
        self._open = OpenRequests(tables, self._tiers, self._prefixes, self._speculator)
        self._preemptor = Preemptor(self._open, tables, self._prefixes, self._tiers, self._limits)
        self._receiver = Receiver(self._open, tables, self._tiers, self._prefixes, self._speculator)
        self._requests = self._open.requests
        self._waiting, self._running = self._open.waiting, self._open.running
        self._uncalled = self._open.uncalled
        self._num_arrivals = 0
        self._next_seq_id: SeqId = 0
        self._num_steps = 0

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
        return len(self._waiting) + len(self._uncalled)

    @property
    def step_token_budget(self) -> int:
        """Most tokens of the last step."""
        return self._step_limits.max_num_batched_tokens

    def usage(self) -> KvUsage:
        """How the block pool is used now. O(1)."""
        tables, counts = self._tables, self._tiers.counts
        return KvUsage(
            num_blocks_total=tables.num_blocks,
            num_blocks_referenced=tables.num_referenced,
            num_blocks_free=tables.num_free,
            num_slots_used=tables.num_slots_used,
            num_slots_referenced=tables.num_referenced * tables.block_size,
            num_blocks_saved_by_sharing=tables.num_saved_by_sharing,
            num_block_copies=tables.num_copies,
            num_preemptions=self._preemptor.counts.total(),
            num_blocks_cached=tables.num_cached,
            num_blocks_evicted=tables.num_evicted,
            num_prefix_queries=self._prefixes.counts.num_queries,
            num_prefix_hits=self._prefixes.counts.num_hits,
            num_blocks_pinned=self.named_prefixes.num_blocks,
            num_dropped_tails=self._preemptor.counts[Method.DROP_TAIL],
            num_swaps=self._preemptor.counts[Method.SWAP],
            num_swap_slots=self._tiers.swap_space.num_slots,
            num_swap_slots_used=self._tiers.swap_space.num_used,
            num_blocks_swapped_out=counts.num_swapped_out,
            num_blocks_swapped_in=counts.num_swapped_in,
            num_blocks_stored=counts.num_saved,
            num_blocks_loaded=counts.num_loaded,
            num_blocks_failed=counts.num_failed,
        )

    def num_blocks_of(self, request_id: str) -> int:
        """Blocks that an open request holds now; one that several of its sequences hold counts once. O(blocks)."""
        sequences = self._requests[request_id].sequences
        return self._tables.num_held_by(sequence.seq_id for sequence in sequences)

    @property
    def speculation(self) -> SpeculationCounts:
        """How much has been guessed, and how much of it was right."""
        return SpeculationCounts() if self._speculator is None else self._speculator.counts

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
        self._prefixes.open(request)
        self._num_arrivals += 1
        self._next_seq_id += len(request.sequences)
        self._open.add(request)

    def abort(self, request_id: str) -> list[Event]:
        """End a request now, also between `schedule` and `commit`. Unknown ids belong to ended requests: []."""
        request = self._requests.get(request_id)
        return [] if request is None else self._open.end_early(request, FinishReason.ABORT)

    def fail(self, request_id: str, error: OctavoError) -> list[Event]:
        """As `abort`, for a reason that its client is told."""
        request = self._requests.get(request_id)
        if request is None:
            return []
        return self._open.end_early(request, FinishReason.ERROR, error=error)

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
        self._open.finish(sequence)
        events: list[Event] = [SequenceEndEvent(request_id, index, FinishReason.ABORT)]
        if request.is_finished:
            events.append(self._open.close(request))
        return events

    def schedule(self) -> StepPlan:
        """Decide the next step. Its `seqs` are empty if no request is open.

        First everything is decided, then blocks are taken: in between, none is given back. So no sequence is
        both planned and preempted, and no block is both source and destination of the step's copies.
        """
        demand = self._preemptor.make_room_to_grow()
        limits = self._step_limits = self._limits_of_step()
        demand = self._admit(demand, limits)
        arrived = self._tiers.not_arriving(self._running)
        shares = share_budget(arrived, self._requests, limits.max_num_batched_tokens)
        guesses = self._guess(shares, demand, limits)
        steps: list[SeqStep] = []
        copies: list[BlockCopy] = []
        grow, blocks = self._tables.grow, self._tables.blocks
        for sequence, num_tokens in shares:
            seq_id, start, known = sequence.seq_id, sequence.num_computed, sequence.token_ids
            stop = start + num_tokens
            guess = guesses.get(seq_id) if guesses else None
            copy = grow(seq_id, stop if guess is None else stop + len(guess))
            if copy is not None:
                copies.append(copy)
            if start < sequence.prompt_len or guess is not None:
                steps.append(self._seq_step(sequence, stop, guess or NOTHING))
            else:
                sampling = sequence.sampling if stop == len(known) else ()
                token_ids, table = known[start:stop], blocks(seq_id)
                steps.append(
                    _seq_step(
                        (seq_id, token_ids, start, table, sampling, 0, known, None, NOTHING, 0)
                    )
                )
        self._tables.settle()
        self._num_steps += 1
        return self._tiers.added_to(StepPlan(self._num_steps, tuple(steps), tuple(copies)))

    def learn(self, plan: StepPlan, seconds: float) -> None:
        """How long a step took, for the size of those to come."""
        if self._governor is not None:
            self._governor.learn(plan, seconds)

    def commit(self, plan: StepPlan, result: StepResult) -> list[Event]:
        """Take over what a runner made of the last plan. Rows of requests that ended meanwhile are ignored."""
        assert plan.step_id == self._num_steps, f"step {plan.step_id} is not the last scheduled"
        return self._receiver.take_over(plan, result)

    @property
    def costs(self) -> RestoreCosts:
        """Of preemption; whoever measures tells them."""
        return self._tiers.costs

    def saves(self) -> StepPlan | None:
        """A plan that only stores blocks; None if there are none to store. Between steps, and not to be committed."""
        saves = self._tiers.next_saves(SAVES_PER_STEP)
        return StepPlan(self._num_steps, (), saves=saves) if saves else None

    def steady_decode(self) -> SteadyDecode | None:
        """The coming steps, if the next holds no decision; for simulations without end tokens. Between steps."""
        if not self._is_simple or self._preemptor.watermark.num_blocks:  # that sinks with each step
            return None
        if self._uncalled and not self._waiting:
            return None
        queues = (self._running, self._waiting, self._requests)
        return find_steady(*queues, self._tables, self._prefixes, self._limits)

    def reset_prefix_cache(self) -> bool:
        """Forget all prefixes that no sequence holds and that have no name. Returns whether nothing is left."""
        self._tables.forget_cached()
        return not self._tables.cache

    def check_integrity(self) -> None:
        """Raise IntegrityError unless queues, tables and pool agree. Between steps; O(N)."""
        self._open.check_integrity()
        if sum(s.num_seats for s in self._running) > self._limits.max_num_seqs:
            raise IntegrityError("more sequences run than there are seats")

    # schedule

    def _limits_of_step(self) -> Limits:
        most = self._limits.max_num_batched_tokens
        if self._governor is None:
            return self._limits
        budget = self._governor.budget(self._running, most)
        return replace(self._limits, max_num_batched_tokens=budget)

    def _admit(self, demand: Demand, limits: Limits) -> Demand:
        """Let waiting sequences in, in order of rank, while there is room for the first of them.

        Only those are passed over who wait for what another is computing. Takes and returns what all running
        sequences need.
        """
        running, place = self._running, 0
        while (candidate := self._open.next_waiting(place)) is not None:
            if tokens_left_for(candidate, running, demand, limits) <= 0:
                break
            request = self._requests[candidate.request_id]
            found = self._prefixes.match(candidate, request)
            if found is None:
                place += 1
                continue
            match = fitting(
                candidate,
                found,
                demand,
                running,
                self._tables,
                limits,
                self._preemptor.num_spare(candidate),
            )
            if match is None:
                if not self._preemptor.make_way(candidate, demand):
                    break
                demand = Demand.of(self._running)
                match = found.without_tail(self._tables.block_size)
            self._waiting.remove(candidate)
            self._prefixes.enter(candidate, request, match)
            request.num_recomputed_tokens += max(0, candidate.num_lost - candidate.num_computed)
            self._open.run(candidate)
            demand.add(candidate)
        return demand

    def _guess(
        self, shares: list[tuple[Sequence, int]], demand: Demand, limits: Limits
    ) -> Mapping[SeqId, "array[int]"]:
        """Guesses for sequences that decode, where tokens and free blocks are left after all that has to be done."""
        speculator = self._speculator
        if speculator is None or len(shares) >= speculator.max_tokens:
            return {}
        num_tokens = sum(count for _, count in shares)
        num_blocks = demand.most_blocks(self._tables.block_size) + speculator.max_tokens
        if num_tokens >= speculator.max_tokens or num_blocks > self._tables.num_available:
            return {}
        candidates = [
            (sequence, self._requests[sequence.request_id].num_tokens_left(sequence))
            for sequence, _ in shares
            if sequence.num_pending == 1 and sequence.num_seats == 1
        ]
        return speculator.guess(candidates, num_tokens, limits.max_num_batched_tokens)

    def _seq_step(self, sequence: Sequence, stop: int, guess: "array[int]") -> SeqStep:
        """Compute the tokens up to position `stop`; the last known one and all guesses give logits to draw from."""
        start = sequence.num_computed
        known = sequence.token_ids
        request = self._requests[sequence.request_id]
        targets = request.prompt_targets(start, stop)
        return SeqStep(
            sequence.seq_id,
            known[start:stop] + guess,
            start,
            self._tables.blocks(sequence.seq_id),
            sequence.sampling if stop == len(known) else (),
            len(guess),
            known,
            request.params.prompt_logprobs if targets else None,
            targets,
            0 if request.pooled is None else request.pooled.num_wanted(start, stop),
        )
