"""Runs requests through the real scheduler and a real runner, and keeps the bits of what was drawn from."""

from array import array
from dataclasses import dataclass, field, replace

import numpy as np

from octavo.config import SchedulingPolicy
from octavo.core.block_tables import BlockTables
from octavo.core.events import RequestEndEvent, TokenEvent
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import StepPlan, StepResult
from support.backends import ForwardRunner

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


@dataclass
class Recorder:
    """A runner around a runner: after each step it computes the same plan again for its logits.

    Keys and values are written a second time with the same bits; copies are left out, since the step has
    done them.
    """

    inner: ForwardRunner
    bits: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """(sequence, output index) -> the logits that this token was drawn from."""

    @property
    def num_blocks(self) -> int:
        return self.inner.num_blocks

    @property
    def block_size(self) -> int:
        return self.inner.block_size

    def run(self, plan: StepPlan) -> StepResult:
        result = self.inner.run(plan)
        logits = self.inner.forward(replace(plan, copies=()))
        row = 0
        for seq in plan.seqs:
            row += len(seq.token_ids)
            for sample in seq.samples:
                key = (sample.seq_id, sample.output_index)
                assert key not in self.bits, "a token was drawn twice"
                self.bits[key] = np.ascontiguousarray(logits[row - 1]).tobytes()
        return result

    def close(self) -> None:
        self.inner.close()


@dataclass
class Outcome:
    """What became of one request."""

    tokens: list[list[int]]
    """By sample."""
    bits: list[list[bytes]]
    num_preemptions: int
    num_cached_tokens: int


def serve(
    runner: ForwardRunner,
    prompts: list[list[int]],
    params: list[SamplingParams] | SamplingParams = GREEDY,
    *,
    max_num_batched_tokens: int = 512,
    max_num_seqs: int = 64,
    num_blocks: int | None = None,
    prefix_caching: bool = True,
) -> list[Outcome]:
    """Submit all prompts at once and run until they are done.

    `num_blocks` below the runner's makes the pool small, so that sequences are preempted.
    """
    if isinstance(params, SamplingParams):
        params = [params] * len(prompts)
    recorder = Recorder(runner)
    tables = BlockTables(num_blocks or runner.num_blocks, runner.block_size)
    scheduler = Scheduler(
        tables,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=tables.num_blocks * runner.block_size,
        policy=SchedulingPolicy.FCFS,
        end_token_ids=frozenset({0}),
        prefix_caching=prefix_caching,
    )
    requests = [
        Request(str(i), array("i", prompt), p, seed=1000 + i)
        for i, (prompt, p) in enumerate(zip(prompts, params, strict=True))
    ]
    for request in requests:
        scheduler.add(request)
    tokens: dict[tuple[str, int], list[int]] = {}
    ends: dict[str, RequestEndEvent] = {}
    while scheduler.has_work:
        plan = scheduler.schedule()
        for event in scheduler.commit(plan, recorder.run(plan)):
            if isinstance(event, TokenEvent):
                tokens.setdefault((event.request_id, event.index), []).append(event.token_id)
            elif isinstance(event, RequestEndEvent):
                assert event.error is None, event.error
                ends[event.request_id] = event
    assert scheduler.usage().num_blocks_referenced == 0
    return [
        Outcome(
            [tokens[request.request_id, i] for i in range(request.params.n)],
            [
                [recorder.bits[sequence.seq_id, j] for j in range(sequence.num_outputs)]
                for sequence in request.sequences
            ],
            ends[request.request_id].num_preemptions,
            ends[request.request_id].num_cached_tokens,
        )
        for request in requests
    ]
