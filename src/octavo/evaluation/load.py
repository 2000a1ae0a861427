"""Load on a server: many streaming clients, a fixed number at a time or arriving at random."""

import asyncio
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, cycle, islice

import uvloop

from octavo.evaluation.completion_stream import Answer, Target, complete, request_bytes
from octavo.evaluation.throughput import WorkItem
from octavo.progress import Progress, silent

PROGRESS_S = 0.5
WARM_UP_REQUESTS = 4
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Load:
    """What a run was, as its clients saw it."""

    answers: tuple[Answer, ...]
    elapsed_s: float
    """From the first request to the end of the last answer."""
    generator_cpu_s: float
    """CPU time that the clients themselves took, all threads of this process."""


def poisson_arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds after the start at which `count` requests arrive, `rate` a second on average."""
    source = random.Random(seed)
    return list(accumulate(source.expovariate(rate) for _ in range(count)))


def repeated(items: Sequence[WorkItem], count: int) -> list[WorkItem]:
    """`count` items: the workload from its start, again as often as needed.

    Each repetition turns the prompts by one more token, so that none begins like its earlier self.
    """
    rounds = islice(enumerate(cycle(items)), count)
    return [_turned(item, i // len(items)) for i, item in rounds]


def warm_up_items(items: Sequence[WorkItem]) -> list[WorkItem]:
    """A few short requests; their prompts are those of the workload backwards."""
    return [
        replace(
            item,
            id=f"warm-up-{item.id}",
            prompt_token_ids=item.prompt_token_ids[::-1],
            max_tokens=min(item.max_tokens, WARM_UP_TOKENS),
        )
        for item in items[:WARM_UP_REQUESTS]
    ]


def run_load(
    target: Target,
    model: str,
    items: Sequence[WorkItem],
    *,
    concurrency: int | None = None,
    arrivals: Sequence[float] | None = None,
    progress: Progress = silent,
) -> Load:
    """Send all items and wait for their ends.

    With `arrivals` (seconds after the start, one each) every request is sent when it is due, however many are
    open; else `concurrency` clients send one after another (None: as many clients as items).
    """
    requests = [request_bytes(target, model, item) for item in items]
    run = _Run(target, items, requests, progress)
    cpu_before = time.process_time()
    if arrivals is not None:
        uvloop.run(run.at_times(arrivals))
    else:
        uvloop.run(run.in_turn(min(concurrency or len(items), len(items))))
    cpu = time.process_time() - cpu_before
    ends = [a.end for a in run.answers if a.end is not None]
    start = min(answer.start for answer in run.answers)
    return Load(tuple(run.answers), max(ends, default=start) - start, cpu)


class _Run:
    """The clients of one run, on one event loop."""

    def __init__(
        self,
        target: Target,
        items: Sequence[WorkItem],
        requests: Sequence[bytes],
        progress: Progress,
    ) -> None:
        self._target = target
        self._items = items
        self._requests = requests
        self._progress = progress
        self._num_pieces = 0
        self.answers: list[Answer] = []

    async def in_turn(self, concurrency: int) -> None:
        """That many clients; each sends its next request when its last has ended."""
        waiting = iter(range(len(self._items)))

        async def client() -> None:
            for i in waiting:
                await self._send(i, time.perf_counter())

        await self._watched([client() for _ in range(concurrency)])

    async def at_times(self, arrivals: Sequence[float]) -> None:
        """Every request when it is due."""
        start = time.perf_counter()

        async def client(i: int, due: float) -> None:
            await asyncio.sleep(due - time.perf_counter())
            await self._send(i, due)

        await self._watched([client(i, start + after) for i, after in enumerate(arrivals)])

    async def _send(self, i: int, due: float) -> None:
        answer = Answer(self._items[i], due)
        self.answers.append(answer)
        await complete(self._target, self._requests[i], answer, self._count)

    def _count(self) -> None:
        self._num_pieces += 1

    async def _watched(self, clients: Sequence[Coroutine[None, None, None]]) -> None:
        """Run all clients and report how far they are, from the pieces of text that have come."""
        expected = sum(item.max_tokens for item in self._items)
        self._progress("running", 0.0)

        async def report() -> None:
            while True:
                await asyncio.sleep(PROGRESS_S)
                self._progress("running", min(1.0, self._num_pieces / expected))

        reporting = asyncio.ensure_future(report())
        try:
            await asyncio.gather(*clients)
        finally:
            reporting.cancel()
        self._progress("running", 1.0)


def _turned(item: WorkItem, by: int) -> WorkItem:
    if by == 0:
        return item
    by %= len(item.prompt_token_ids)
    ids = item.prompt_token_ids[by:] + item.prompt_token_ids[:by]
    return replace(item, id=f"{item.id}-{by}", prompt_token_ids=ids)
