"""What happened in a simulation, as sums and lists; `figures` makes the report of it."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.planning.batching import Counts, MemoryUse, SequenceKey
from octavo.planning.requests import SimRequest
from octavo.planning.work import StepWork

MOST_SAMPLES = 2000
_NO_MEMORY = MemoryUse(0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class Served:
    """A request's times, in seconds."""

    request: SimRequest
    first_token_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """The state in one step."""

    time_s: float
    num_requests: int
    memory: MemoryUse


@dataclass(slots=True)
class Timeline:
    """At most MOST_SAMPLES moments, evenly spread: when there are too many, every other one is dropped."""

    moments: list[Moment] = field(default_factory=list)
    _interval_s: float = 1e-3
    _next_s: float = 0.0

    def add(self, time_s: float, num_requests: int, memory: MemoryUse) -> None:
        """Keep this moment if it is time for one."""
        if time_s < self._next_s:
            return
        self.moments.append(Moment(time_s, num_requests, memory))
        if len(self.moments) >= MOST_SAMPLES:
            del self.moments[1::2]
            self._interval_s *= 2
        self._next_s = time_s + self._interval_s


class Recorder:
    """Takes down steps and tokens. Means over time weigh each step with its length."""

    def __init__(self) -> None:
        self.served: dict[str, Served] = {}
        """By request, in order of arrival."""
        self.timeline = Timeline()
        self.pauses = array("d")
        """Different pauses between two tokens of an answer, in seconds, and how often each came."""
        self.pause_counts = array("q")
        self.num_steps = 0
        self.num_batched_tokens = 0
        """Tokens computed, those computed again included."""
        self.busy_s = 0.0
        """Time in steps."""
        self.request_seconds = 0.0
        """Sum over steps of length times requests in the step."""
        self.memory_seconds: tuple[float, ...] = (0.0,) * len(_NO_MEMORY)
        """Sum over steps of length times slots, by the fields of MemoryUse."""
        self.end_s = 0.0
        self.counts = Counts()
        self._last_token: dict[SequenceKey, float] = {}

    def arrived(self, request: SimRequest) -> None:
        """A request is in the queue."""
        self.served[request.request_id] = Served(request)

    def step(
        self, start: float, end: float, num_requests: int, work: StepWork, memory: MemoryUse
    ) -> None:
        """A step from `start` to `end`."""
        seconds = end - start
        self.num_steps += 1
        self.num_batched_tokens += work.num_tokens
        self.busy_s += seconds
        self.request_seconds += seconds * num_requests
        tokens, reserved, internal, external, free, saved = self.memory_seconds
        self.memory_seconds = (
            tokens + seconds * memory.tokens,
            reserved + seconds * memory.reserved,
            internal + seconds * memory.internal,
            external + seconds * memory.external,
            free + seconds * memory.free,
            saved + seconds * memory.saved,
        )
        self.timeline.add(start, num_requests, memory)

    def tokens(self, now: float, keys: Sequence[SequenceKey]) -> None:
        """These answers got a token."""
        last = self._last_token
        pauses: dict[float, int] = {}
        for key in keys:
            before = last.get(key)
            last[key] = now
            if before is not None:
                pause = now - before
                pauses[pause] = pauses.get(pause, 0) + 1
                continue
            served = self.served[key[0]]
            if served.first_token_s is None:
                served.first_token_s = now
        for pause, count in pauses.items():
            self.same_pause(pause, count)

    def same_pause(self, seconds: float, count: int) -> None:
        """So many answers got a token this long after their last."""
        self.pauses.append(seconds)
        self.pause_counts.append(count)

    def last_tokens(self, now: float, keys: Sequence[SequenceKey]) -> None:
        """These answers got their last token so far now; the pauses are counted already."""
        for key in keys:
            self._last_token[key] = now

    def ended(self, request_id: str, now: float) -> SimRequest:
        """A request has its last token."""
        served = self.served[request_id]
        served.end_s = now
        for index in range(served.request.n):
            self._last_token.pop((request_id, index), None)
        return served.request

    def open_at(self, times: Sequence[float]) -> list[int]:
        """Requests that had come and not ended at each of these ascending times."""
        arrivals = sorted(s.request.arrival_s for s in self.served.values())
        ends = sorted(s.end_s for s in self.served.values() if s.end_s is not None)
        return [bisect_right(arrivals, t) - bisect_right(ends, t) for t in times]

    def close(self, now: float, counts: Counts) -> None:
        """The simulation is over."""
        self.end_s = now
        self.counts = counts
