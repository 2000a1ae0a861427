"""A load on the real engine, recorded as the simulator records its own: what the two of them say can be compared."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import StepPlan
from octavo.engine.loop import Engine
from octavo.engine.messages import StepOutputs, Submit
from octavo.engine.named_errors import error_named
from octavo.evaluation.step_profile import PlanKeeper
from octavo.planning.batching import Counts
from octavo.planning.paged import counts_of_pages, memory_of_pages
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.work import AttentionSpan, work_of
from octavo.progress import Progress, silent

SHORTEST_SLEEP_S = 1e-4


def replay(
    engine: Engine,
    keeper: PlanKeeper,
    span: AttentionSpan,
    requests: Sequence[SimRequest],
    progress: Progress = silent,
) -> Recorder:
    """Submit every request when it is due, greedy and past end tokens; the records, in seconds from the start.

    In this process and without HTTP. `keeper` is the engine's runner.
    """
    before = counts_of_pages(engine.stats)
    coming = sorted(requests, key=lambda request: request.arrival_s)
    submits = [_submit(request) for request in coming]
    taken: list[_Step] = []
    num_sent = 0
    start = time.perf_counter()
    while num_sent < len(coming) or engine.has_work:
        now = time.perf_counter() - start
        while num_sent < len(coming) and coming[num_sent].arrival_s <= now:
            engine.submit(submits[num_sent])
            num_sent += 1
            progress("replaying", num_sent / len(coming))
        if not engine.has_work:
            time.sleep(max(SHORTEST_SLEEP_S, coming[num_sent].arrival_s - now))
            continue
        begin = time.perf_counter() - start
        outputs = engine.step()
        assert keeper.plan is not None  # a step has just run
        taken.append(_Step(begin, time.perf_counter() - start, keeper.plan, outputs))
    # What follows would have been a part of the pauses between the steps.
    recorder = Recorder()
    for request in coming:
        recorder.arrived(request)
    for step in taken:
        _record(recorder, step, span, keeper.block_size)
    after = counts_of_pages(engine.stats)
    recorder.close(taken[-1].end, Counts(*(b - a for a, b in zip(before, after, strict=True))))
    return recorder


class _Step(NamedTuple):
    begin: float
    end: float
    plan: StepPlan
    outputs: StepOutputs


def _record(recorder: Recorder, step: _Step, span: AttentionSpan, block_size: int) -> None:
    outputs = step.outputs
    # Prompts that are not done are in the step too, and give no token.
    num_requests = len({output.request_id for output in outputs.sequences})
    num_requests += sum(1 for seq in step.plan.seqs if not seq.sampling)
    # After the step: what has just ended holds nothing any more.
    work, memory = work_of(step.plan, span), memory_of_pages(outputs.stats, block_size)
    recorder.step(step.begin, step.end, num_requests, work, memory)
    keys = [(o.request_id, o.index) for o in outputs.sequences for _ in o.token_ids]
    recorder.tokens(step.end, keys)
    for ended in outputs.ends:
        if ended.error is not None:
            raise error_named(ended.error_type, f"request {ended.request_id}: {ended.error}")
        recorder.ended(ended.request_id, step.end)


def _submit(request: SimRequest) -> Submit:
    params = SamplingParams(
        n=request.n,
        temperature=0.0 if request.n == 1 else 1.0,
        max_tokens=request.output_len,
        ignore_eos=True,
    )
    return Submit(request.request_id, request.token_ids.tobytes(), params, seed=0)
