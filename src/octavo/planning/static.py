"""Static batching: a batch begins together and ends together, as FasterTransformer with a batcher in front."""

from collections import deque

from octavo.errors import CapacityError
from octavo.planning.batching import Counts, MemoryUse, Outcome, SequenceKey, SteadySteps
from octavo.planning.requests import SimRequest, check_length
from octavo.planning.work import AttentionSpan, StepWork


class StaticBatcher:
    """As many of the earliest requests as memory holds at full length, until the last of them is done.

    Who is done earlier is computed on, and nobody enters; answers are given when the whole batch has ended.
    """

    def __init__(self, span: AttentionSpan, *, num_slots: int, max_model_len: int) -> None:
        self.max_model_len = max_model_len
        self.counts = Counts()
        """Nobody is ever preempted, and nothing is cached."""
        self._num_slots = num_slots
        self._span = span
        self._num_seats = num_slots // max_model_len
        self._waiting: deque[SimRequest] = deque()
        self._batch: list[SimRequest] = []
        self._num_outputs = 0

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._waiting) + len(self._batch)

    def add(self, request: SimRequest) -> None:
        """A request has arrived. Raises CapacityError for one that can never run."""
        check_length(request, self.max_model_len)
        if request.n > self._num_seats:
            raise CapacityError(
                f"request {request.request_id} has {request.n} answers; a batch has {self._num_seats} sequences"
            )
        self._waiting.append(request)

    def step(self) -> Outcome:
        """Begin a batch if there is none, and give everybody in it a token."""
        if not self._batch:
            self._begin()
        work, memory = self._work(), self._memory()
        self._num_outputs += 1
        tokens: list[SequenceKey] = []
        ended: list[str] = []
        for request in self._batch:
            if self._num_outputs <= request.output_len:
                tokens += [(request.request_id, index) for index in range(request.n)]
        num_requests = len(self._batch)
        if self._num_outputs == max(request.output_len for request in self._batch):
            ended = [request.request_id for request in self._batch]
            self._batch = []
        return Outcome(work, memory, num_requests, tokens, ended)

    def took(self, _seconds: float, /) -> None:
        """Nothing is decided by it."""

    def steady(self) -> SteadySteps | None:
        """Batches are short enough to go step by step."""
        return None

    def _begin(self) -> None:
        self._num_outputs = 0
        seats = self._num_seats
        while self._waiting and self._waiting[0].n <= seats:
            seats -= self._waiting[0].n
            self._batch.append(self._waiting.popleft())

    def _work(self) -> StepWork:
        span, batch = self._span, self._batch
        num_seqs = sum(request.n for request in batch)
        if self._num_outputs == 0:
            # Shorter prompts are filled up to the longest.
            longest = max(request.prompt_len for request in batch)
            num = len(batch)
            keys, pairs = num * span.keys(0, longest), num * span.pairs(0, longest)
            return StepWork(num * longest, num, keys, pairs)
        lengths = [r.prompt_len + self._num_outputs - 1 for r in batch for _ in range(r.n)]
        keys = span.decode_keys(lengths)
        return StepWork(num_seqs, num_seqs, keys, keys)

    def _memory(self) -> MemoryUse:
        tokens = final = reserved = 0
        for request in self._batch:
            last = request.prompt_len + request.output_len - 1
            tokens += request.n * min(last, request.prompt_len + self._num_outputs)
            final += request.n * last
            reserved += request.n * self.max_model_len
        left = self._num_slots - reserved
        lost, free = (left, 0) if self._waiting else (0, left)
        return MemoryUse(tokens, final - tokens, reserved - final, lost, free)
