"""One simulated machine: requests come, steps take the time that a cost model gives them, and all is recorded."""

import math
from collections.abc import Callable
from heapq import heappop, heappush

from octavo.planning.batching import Batcher, Outcome, SteadySteps
from octavo.planning.costs import CostModel
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.swapping import PageTraffic

AfterStep = Callable[[float], None]
"""Called with the time after each step."""


class SimulatedMachine:
    """A batcher in time. Time passes in `advance` only.

    A request that comes during a step is seen when the step ends, as in the engine.
    """

    def __init__(
        self,
        batcher: Batcher,
        costs: CostModel,
        recorder: Recorder,
        *,
        fast_forward: bool = True,
        page_s: float = 0.0,
    ) -> None:
        """`fast_forward`: take steps without a decision at once; the records are the same either way.

        `page_s`: seconds to write a page to the swap space, or to read it back.
        """
        self.clock = 0.0
        """Seconds; the end of the last step."""
        self.batcher = batcher
        self.recorder = recorder
        self.idle_until = 0.0
        """Nothing that others can see changes before: neither an end nor an entry."""
        self._costs = costs
        self._traffic = PageTraffic(page_s)
        self._fast_forward = fast_forward
        self._after_step: AfterStep | None = None
        self._coming: list[tuple[float, int, SimRequest]] = []
        self._num_offered = 0
        self._is_asleep = True
        """Nothing was open before."""

    @property
    def num_open(self) -> int:
        """Requests that have been offered and have not ended, future ones included."""
        return self.batcher.num_open + len(self._coming)

    def look_after_steps(self, after_step: AfterStep) -> None:
        """Call this with the time after each step; every step is taken by itself from now on."""
        self._after_step = after_step
        self._fast_forward = False

    def offer(self, request: SimRequest) -> None:
        """A request that arrives at its `arrival_s`, now or later."""
        heappush(self._coming, (request.arrival_s, self._num_offered, request))
        self._num_offered += 1
        self.idle_until = min(self.idle_until, request.arrival_s)

    def run(self, until: float = math.inf) -> Recorder:
        """To the end of the last request, or to a time; returns the records."""
        self.advance(until)
        self.recorder.close(self.clock, self.batcher.counts)
        return self.recorder

    def advance(self, until: float) -> None:
        """Take all steps that begin before `until`. Raises UserError for a request that can never run."""
        while True:
            self._take_arrivals()
            if self.batcher.num_open == 0:
                if not self._coming or self._coming[0][0] >= until:
                    return
                self.clock = self._coming[0][0]
                self._is_asleep = True
                continue
            if self.clock >= until:
                return
            steps = self.batcher.steady() if self._fast_forward else None
            if steps is None:
                self._step()
            else:
                self._skip(steps, until if steps.has_queue else min(until, self._next_arrival))

    @property
    def _next_arrival(self) -> float:
        return self._coming[0][0] if self._coming else math.inf

    def _take_arrivals(self) -> None:
        while self._coming and self._coming[0][0] <= self.clock:
            _, _, request = heappop(self._coming)
            self.batcher.add(request)
            self.recorder.arrived(request)

    def _step(self) -> None:
        outcome = self.batcher.step()
        start = end = self.clock
        if outcome.work.num_tokens:  # else all that it does is to bring pages back
            end += self._costs.seconds(outcome.work)
        self.batcher.took(end - start)
        if self._is_asleep:
            end += self._costs.wake_s
            self._is_asleep = False
        self.clock = self._traffic.end_of_step(
            start, end, outcome.num_swapped_out, outcome.num_swapped_in
        )
        self.recorder.step(start, self.clock, outcome.num_requests, outcome.work, outcome.memory)
        self.recorder.tokens(self.clock, outcome.tokens)
        self._end(outcome)
        self.idle_until = self.clock
        if self._after_step is not None:
            self._after_step(self.clock)

    def _end(self, outcome: Outcome) -> None:
        for request_id in outcome.ended:
            request = self.recorder.ended(request_id, self.clock)
            follower = request.after(self.clock, self.batcher.max_model_len)
            if follower is not None:
                self.offer(follower)

    def _skip(self, steps: SteadySteps, until: float) -> None:
        num_requests, keys = steps.num_requests, steps.keys
        count, clock, seconds = 0, self.clock, 0.0
        for work, memory in steps.steps():
            if clock >= until:
                break
            start = clock
            seconds = self._costs.seconds(work)
            clock = start + seconds
            self.recorder.step(start, clock, num_requests, work, memory)
            if count:
                self.recorder.same_pause(clock - start, len(keys))
            else:  # who was preempted had its last token long ago
                self.recorder.tokens(clock, keys)
            count += 1
        steps.skip(count)
        self.recorder.last_tokens(clock, keys)
        self.clock = clock
        # Later steps read more keys, so they are not shorter than the last.
        self.idle_until = clock + (steps.num_steps - count) * seconds
