"""Batching step by step over contiguous memory that is reserved when a request enters, as before paging.

These are the baselines of Kwon et al. (SOSP 2023, section 6.1): Orca's scheduling with a buddy allocator.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from octavo.errors import CapacityError
from octavo.planning.batching import (
    FREE_CELL,
    Cell,
    CellState,
    Counts,
    MemoryUse,
    Outcome,
    SequenceKey,
)
from octavo.planning.buddy import BuddyAllocator
from octavo.planning.requests import SimRequest, check_length
from octavo.planning.work import AttentionSpan, StepWork


class Reservation(Enum):
    """How much a request sets aside when it enters."""

    MAX = "max"
    """The longest sequence that the model allows."""
    POW2 = "pow2"
    """The prompt, and the answer rounded up to a power of two: at most twice what it will need."""
    ORACLE = "oracle"
    """Prompt and answer exactly, as if the length of the answer were known."""

    def slots(self, request: SimRequest, max_model_len: int) -> int:
        """Slots for one answer to this request."""
        if self is Reservation.MAX:
            return max_model_len
        output_len = request.output_len
        if self is Reservation.POW2:
            output_len = 1 << (output_len - 1).bit_length()
        return min(max_model_len, request.prompt_len + output_len)


@dataclass(slots=True)
class _Running:
    request: SimRequest
    index: int
    begin: int
    """Of its piece of memory."""
    reserved: int
    """Slots that it asked for."""
    num_outputs: int = 0

    @property
    def key(self) -> SequenceKey:
        return (self.request.request_id, self.index)

    @property
    def final_len(self) -> int:
        """Slots that it uses in the end; the last token is drawn and never computed."""
        return self.request.prompt_len + self.request.output_len - 1

    @property
    def num_tokens(self) -> int:
        """Slots in use in the step that draws the next token."""
        return self.request.prompt_len + self.num_outputs


class ContiguousBatcher:
    """First come, first served; each answer has a piece of memory of its own from its first step to its last.

    Prompts are computed whole, in the step in which a request enters; answers to one prompt compute it once, and
    each keeps a copy.
    """

    def __init__(
        self,
        span: AttentionSpan,
        reservation: Reservation,
        *,
        num_slots: int,
        max_model_len: int,
        max_num_seqs: int = 256,
    ) -> None:
        self.max_model_len = max_model_len
        self.counts = Counts()
        """Nobody is ever preempted, and nothing is cached."""
        self.memory = BuddyAllocator(num_slots)
        self._span = span
        self._reservation = reservation
        self._max_num_seqs = max_num_seqs
        self._waiting: deque[SimRequest] = deque()
        self._running: list[_Running] = []
        self._num_left: dict[str, int] = {}
        """Answers of each open request that have not ended."""

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._num_left)

    @property
    def running(self) -> Sequence[_Running]:
        """Who holds memory, in order of entry."""
        return self._running

    def add(self, request: SimRequest) -> None:
        """A request has arrived. Raises CapacityError for one that can never run."""
        check_length(request, self.max_model_len)
        slots = self._reservation.slots(request, self.max_model_len)
        if request.n << (slots - 1).bit_length() > self.memory.size:
            raise CapacityError(
                f"request {request.request_id} needs {request.n} x {slots} slots, each rounded up to a power of two; "
                f"there are {self.memory.size}"
            )
        self._num_left[request.request_id] = request.n
        self._waiting.append(request)

    def step(self) -> Outcome:
        """Let in who fits, then give everybody a token."""
        self._admit()
        work = self._work()
        memory = self._memory()
        num_requests = len({run.request.request_id for run in self._running})
        tokens = [run.key for run in self._running]
        for run in self._running:
            run.num_outputs += 1
        return Outcome(work, memory, num_requests, tokens, self._release())

    def took(self, _seconds: float, /) -> None:
        """Nothing is decided by it."""

    def steady(self) -> "ContiguousSteadySteps | None":
        """The coming steps until an answer ends; None if somebody is about to enter or to compute a prompt."""
        running = self._running
        if not running or any(run.num_outputs == 0 for run in running):
            return None
        if self._waiting and self._could_enter(self._waiting[0]):
            return None
        num_steps = min(run.request.output_len - run.num_outputs for run in running) - 1
        if num_steps < 1:
            return None
        return ContiguousSteadySteps(
            running, num_steps, self._span, self._memory(), has_queue=bool(self._waiting)
        )

    def cells(self, cell_slots: int) -> list[Cell]:
        """The memory in cells of so many slots."""
        found = [FREE_CELL] * (self.memory.size // cell_slots)
        for run in self._running:
            owner = run.request.request_id
            ends = (
                (run.num_tokens, CellState.TOKENS),
                (run.final_len, CellState.RESERVED),
                (run.reserved, CellState.WASTED),
                (self.memory.size_at(run.begin), CellState.LOST),
            )
            position = 0
            for end, state in ends:
                while position < end and run.begin + position < len(found) * cell_slots:
                    found[(run.begin + position) // cell_slots] = Cell(owner, state)
                    position += cell_slots
        return found

    def _admit(self) -> None:
        while self._waiting:
            request = self._waiting[0]
            if len(self._running) + request.n > max(self._max_num_seqs, request.n):
                return
            begins = self._allocate(request)
            if begins is None:
                return
            self._waiting.popleft()
            slots = self._reservation.slots(request, self.max_model_len)
            self._running += [_Running(request, i, begin, slots) for i, begin in enumerate(begins)]

    def _allocate(self, request: SimRequest) -> list[int] | None:
        """A piece for each answer, or nothing at all."""
        slots = self._reservation.slots(request, self.max_model_len)
        begins: list[int] = []
        for _ in range(request.n):
            begin = self.memory.allocate(slots)
            if begin is None:
                for taken in begins:
                    self.memory.free(taken)
                return None
            begins.append(begin)
        return begins

    def _could_enter(self, request: SimRequest) -> bool:
        if len(self._running) + request.n > max(self._max_num_seqs, request.n):
            return False
        begins = self._allocate(request)
        for begin in begins or ():
            self.memory.free(begin)
        return begins is not None

    def _work(self) -> StepWork:
        span = self._span
        lengths = [run.num_tokens - 1 for run in self._running if run.num_outputs]
        prompts = [run.request for run in self._running if not run.num_outputs and run.index == 0]
        keys = pairs = span.decode_keys(lengths)
        num_tokens = len(lengths)
        for request in prompts:
            num_tokens += request.prompt_len
            keys += span.keys(0, request.prompt_len)
            pairs += span.pairs(0, request.prompt_len)
        return StepWork(num_tokens, len(lengths) + len(prompts), keys, pairs)

    def _memory(self) -> MemoryUse:
        tokens = sum(run.num_tokens for run in self._running)
        final = sum(min(run.reserved, run.final_len) for run in self._running)
        reserved = sum(run.reserved for run in self._running)
        taken = self.memory.size - self.memory.num_free
        # Free memory that the next request waits for is lost to fragmentation; else it is just not needed.
        lost, free = (self.memory.num_free, 0) if self._waiting else (0, self.memory.num_free)
        return MemoryUse(tokens, final - tokens, reserved - final, taken - reserved + lost, free)

    def _release(self) -> list[str]:
        ended: list[str] = []
        for run in self._running:
            if run.num_outputs == run.request.output_len:
                self.memory.free(run.begin)
                name = run.request.request_id
                self._num_left[name] -= 1
                if self._num_left[name] == 0:
                    del self._num_left[name]
                    ended.append(name)
        self._running = [r for r in self._running if r.num_outputs < r.request.output_len]
        return ended


class ContiguousSteadySteps:
    """Implements `SteadySteps`: reserved memory fills up, nothing else moves."""

    def __init__(
        self,
        running: list[_Running],
        num_steps: int,
        span: AttentionSpan,
        memory: MemoryUse,
        *,
        has_queue: bool,
    ) -> None:
        self.num_steps = num_steps
        self.has_queue = has_queue
        self.keys = [run.key for run in running]
        self.num_requests = len({run.request.request_id for run in running})
        self._running = running
        self._span = span
        self._memory = memory

    def steps(self) -> Iterator[tuple[StepWork, MemoryUse]]:
        """What each of them is."""
        count, span, memory = len(self._running), self._span, self._memory
        lengths = [run.num_tokens - 1 for run in self._running]
        base, more = span.decode_keys(lengths), span.num_layers * count
        for step in range(self.num_steps):
            if span.is_whole:
                keys = base + step * more
            else:
                keys = span.decode_keys(length + step for length in lengths)
            grown = step * count
            use = memory._replace(tokens=memory.tokens + grown, reserved=memory.reserved - grown)
            yield StepWork(count, count, keys, keys), use

    def skip(self, count: int) -> None:
        """Take the first `count` of them."""
        for run in self._running:
            run.num_outputs += count
