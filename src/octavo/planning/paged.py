"""The real scheduler and the real block tables, with a runner that computes nothing."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from octavo.config import SchedulerConfig, SchedulingPolicy
from octavo.core.block_tables import BlockTables
from octavo.core.costs import RestoreCosts
from octavo.core.events import RequestEndEvent, TokenEvent
from octavo.core.governor import Governor
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.steady import SteadyDecode
from octavo.core.step import SeqId, StepPlan, StepResult
from octavo.core.tiers import Tiers
from octavo.core.usage import KvUsage
from octavo.engine.messages import EngineStats
from octavo.planning.batching import (
    CACHED_CELL,
    FREE_CELL,
    Cell,
    CellState,
    Counts,
    MemoryUse,
    Outcome,
    SequenceKey,
)
from octavo.planning.requests import SimRequest, answer_token, check_length
from octavo.planning.work import AttentionSpan, StepWork, work_of

_NO_END_TOKENS: frozenset[int] = frozenset()


class PagedBatcher:
    """Octavo itself: what the engine would do with these requests and settings, step for step."""

    def __init__(
        self,
        span: AttentionSpan,
        *,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        limits: SchedulerConfig | None = None,
        prefix_caching: bool = False,
        costs: RestoreCosts | None = None,
        num_swap_slots: int = 0,
    ) -> None:
        """`costs` of preemption: None where there is no swap space."""
        limits = limits or SchedulerConfig()
        target_ms = limits.target_itl_ms
        self._has_target = target_ms is not None
        self.tables = BlockTables(num_blocks, block_size)
        self.max_model_len = max_model_len
        self._span = span
        self._scheduler = Scheduler(
            self.tables,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            max_model_len=max_model_len,
            policy=SchedulingPolicy.FCFS,
            end_token_ids=_NO_END_TOKENS,
            prefix_caching=prefix_caching,
            governor=None if target_ms is None else Governor(target_ms / 1000),
            # Without a swap space only the number of tokens to compute again decides, whatever one costs.
            tiers=Tiers(
                self.tables, costs or RestoreCosts(token=1.0), num_swap_slots=num_swap_slots
            ),
        )
        self._keys: dict[SeqId, SequenceKey] = {}
        self._tokens: dict[SeqId, int] = {}
        """What each sequence generates, again and again."""
        self._recorded: dict[SeqId, tuple[int, array[int]]] = {}
        """Of those whose answers are known: the length of the prompt, and the answer."""
        self._open: dict[str, list[SeqId]] = {}
        self.last_plan: StepPlan | None = None
        """For those who look closer: the plan of the last step that was decided."""

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    @property
    def counts(self) -> Counts:
        """What has come together so far."""
        return counts_of_pages(self._scheduler.usage())

    @property
    def num_copies(self) -> int:
        """Blocks copied on write."""
        return self.tables.num_copies

    def add(self, request: SimRequest) -> None:
        """A request has arrived. Raises UserError for one that can never run."""
        check_length(request, self.max_model_len)
        params = _params(request.n, request.output_len)
        added = Request(request.request_id, request.token_ids, params, seed=0)
        self._scheduler.add(added)
        self._open[request.request_id] = [sequence.seq_id for sequence in added.sequences]
        for index, sequence in enumerate(added.sequences):
            self._keys[sequence.seq_id] = (request.request_id, index)
            if request.answers:
                self._recorded[sequence.seq_id] = request.prompt_len, request.answers[index]
            else:
                self._tokens[sequence.seq_id] = answer_token(request.request_id, index)

    def step(self) -> Outcome:
        """Schedule and commit."""
        plan = self.last_plan = self._scheduler.schedule()
        memory = self._memory()
        tokens_drawn = [
            self._draw(sampling.seq_id, seq.start + len(seq.token_ids))
            for seq in plan.seqs
            for sampling in seq.sampling
        ]
        num_requests = len({self._keys[seq.seq_id][0] for seq in plan.seqs})
        tokens: list[SequenceKey] = []
        ended: list[str] = []
        for event in self._scheduler.commit(plan, StepResult(tokens_drawn)):
            if isinstance(event, TokenEvent):
                tokens.append((event.request_id, event.index))
            elif isinstance(event, RequestEndEvent):
                ended.append(event.request_id)
        for request_id in ended:
            for seq_id in self._open.pop(request_id):
                del self._keys[seq_id]
                self._tokens.pop(seq_id, None)
                self._recorded.pop(seq_id, None)
        return Outcome(
            work_of(plan, self._span),
            memory,
            num_requests,
            tokens,
            ended,
            len(plan.swap_outs),
            len(plan.swap_ins),
        )

    def took(self, seconds: float, /) -> None:
        """How long the last step took: a target of latency goes by it."""
        if self._has_target and self.last_plan is not None:
            self._scheduler.learn(self.last_plan, seconds)

    def steady(self) -> "PagedSteadySteps | None":
        """The coming steps, if the next holds no decision.

        Step by step goes what is learned from each, and recorded answers, which may be alike.
        """
        if self._recorded or self._has_target:
            return None
        found = self._scheduler.steady_decode()
        if found is None or found.num_steps < 1:
            return None
        lengths = found.lengths
        keys = [self._keys[seq_id] for seq_id, _ in lengths]
        return PagedSteadySteps(
            self._scheduler,
            found,
            keys,
            self._tokens.__getitem__,
            [length for _, length in lengths],
            self._span,
            self._memory(),
        )

    def cells(self) -> list[Cell]:
        """All pages."""
        tables = self.tables
        found = [FREE_CELL] * tables.num_blocks
        for block in tables.cached_blocks():
            found[block] = CACHED_CELL
        for seq_id, (request_id, _) in self._keys.items():
            if tables.num_tokens(seq_id) == 0:
                continue
            for block in tables.blocks(seq_id):
                state = CellState.SHARED if tables.ref_count(block) > 1 else CellState.TOKENS
                if found[block].owner is None:
                    found[block] = Cell(request_id, state)
        return found

    def _draw(self, seq_id: SeqId, position: int) -> int:
        """The token of a sequence at this position."""
        token = self._tokens.get(seq_id)
        if token is not None:
            return token
        prompt_len, answer = self._recorded[seq_id]
        return answer[position - prompt_len]

    def _memory(self) -> MemoryUse:
        return memory_of_pages(self._scheduler.usage(), self.tables.block_size)


def memory_of_pages(usage: KvUsage | EngineStats, block_size: int) -> MemoryUse:
    """What the scheduler, or a running engine, says of its pages."""
    return MemoryUse(
        tokens=usage.num_slots_used,
        reserved=0,
        internal=usage.num_slots_referenced - usage.num_slots_used,
        external=0,
        free=(usage.num_blocks_total - usage.num_blocks_referenced) * block_size,
        saved=usage.num_blocks_saved_by_sharing * block_size,
    )


def counts_of_pages(usage: KvUsage | EngineStats) -> Counts:
    """Likewise, of what has come together."""
    return Counts(
        usage.num_preemptions,
        usage.num_dropped_tails,
        usage.num_prefix_queries,
        usage.num_prefix_hits,
        usage.num_swaps,
    )


class PagedSteadySteps:
    """Implements `SteadySteps` over the scheduler's own."""

    def __init__(
        self,
        scheduler: Scheduler,
        found: SteadyDecode,
        keys: Sequence[SequenceKey],
        token_of: Callable[[SeqId], int],
        lengths: list[int],
        span: AttentionSpan,
        memory: MemoryUse,
    ) -> None:
        self.keys = keys
        self.has_queue = scheduler.num_waiting > 0
        self.num_requests = len({request_id for request_id, _ in keys})
        self._found = found
        self._token_of = token_of
        self._lengths = lengths
        self._span = span
        self._memory = memory

    @property
    def num_steps(self) -> int:
        """How many there are."""
        return self._found.num_steps

    def steps(self) -> Iterator[tuple[StepWork, MemoryUse]]:
        """What each of them is; memory as it is while the step runs."""
        count, memory, span = len(self._lengths), self._memory, self._span
        block_size = self._found.block_size
        base, more = span.decode_keys(self._lengths), span.num_layers * count
        tokens, internal, free = memory.tokens, memory.internal, memory.free
        for step in range(self._found.num_steps):
            taken = self._found.blocks_taken(step) * block_size
            tokens += count
            internal += taken - count
            free -= taken
            if span.is_whole:
                keys = base + step * more
            else:
                keys = span.decode_keys(length + step for length in self._lengths)
            use = MemoryUse(tokens, 0, internal, 0, free, memory.saved)
            yield StepWork(count, count, keys, keys), use

    def skip(self, count: int) -> None:
        """Take the first `count` of them."""
        self._found.skip(count, self._token_of)


@lru_cache(maxsize=4096)
def _params(n: int, output_len: int) -> SamplingParams:
    return SamplingParams(n=n, max_tokens=output_len, ignore_eos=True)
