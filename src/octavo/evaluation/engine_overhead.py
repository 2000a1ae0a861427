"""What lies between two runs of the kernels: scheduling, packing, taking over the results, and telling of them.

The engine's own parts run over a block pool and sequences of any number; only the kernels are left out: every draw gives
token 0.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from octavo.backends.native.step_arrays import StepAnswers, StepArrays
from octavo.config import SchedulingPolicy
from octavo.core.block_tables import BlockTables
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import StepPlan, StepResult
from octavo.engine.loop import Engine
from octavo.engine.messages import Submit
from octavo.engine.prompts import token_id_array
from octavo.evaluation.percentiles import median

BLOCK_SIZE = 16
VOCAB_SIZE = 49_152
MS = 1000.0
_encode = msgspec.msgpack.Encoder().encode  # as `engine.channel`


@dataclass(frozen=True, slots=True)
class EngineOverhead:
    """Milliseconds of a step in which every sequence decodes; medians."""

    num_seqs: int
    num_blocks: int
    open_pool_ms: float
    schedule_ms: float
    pack_ms: float
    """The plan as arrays, and the answers as a result."""
    commit_ms: float
    report_ms: float
    """Outputs for the front end, encoded."""

    @property
    def total_ms(self) -> float:
        """All that a step takes beside the kernels."""
        return self.schedule_ms + self.pack_ms + self.commit_ms + self.report_ms


class PackingRunner:
    """A native runner without kernels."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = BLOCK_SIZE
        self.seconds = 0.0
        """Of the last run."""

    def run(self, plan: StepPlan) -> StepResult:
        """Pack the step and unpack answers that are all zero."""
        start = time.perf_counter()
        arrays = StepArrays(VOCAB_SIZE)
        arrays.add_tokens(plan)
        arrays.add_draws(plan)
        answers = StepAnswers.for_step(arrays, 0)
        arrays.words()
        result = answers.result(plan, arrays)
        self.seconds = time.perf_counter() - start
        return result

    def close(self) -> None:
        """Nothing to give back."""


def measure_overhead(
    num_seqs: int,
    num_blocks: int,
    *,
    context: int = 330,
    num_steps: int = 100,
    params: SamplingParams | None = None,
) -> EngineOverhead:
    """Decode `num_steps` tokens of sequences with `context` tokens each; greedy without `params`.

    Raises ValueError if the pool does not hold them.
    """
    blocks_each = -(-(context + num_steps + 1) // BLOCK_SIZE)
    if num_seqs * (blocks_each + 1) > num_blocks:
        raise ValueError(f"{num_blocks} blocks do not hold {num_seqs} sequences of {context}")
    start = time.perf_counter()
    tables = BlockTables(num_blocks, BLOCK_SIZE)
    open_pool = time.perf_counter() - start
    scheduler = Scheduler(
        tables,
        max_num_batched_tokens=num_seqs * context,  # all prompts in one step
        max_num_seqs=num_seqs,
        max_model_len=context + num_steps + 2,
        policy=SchedulingPolicy.FCFS,
        end_token_ids=frozenset({1, 2}),
    )
    runner = PackingRunner(num_blocks)
    engine = Engine(
        scheduler,
        runner,
        vocab_size=VOCAB_SIZE,
        max_logprobs=0,
        max_num_queued_reqs=num_seqs,
    )
    wanted = params or SamplingParams(temperature=0.0, max_tokens=None)
    for i in range(num_seqs):
        prompt = token_id_array([3 + i] * context).tobytes()  # who begins alike would wait
        engine.submit(Submit(f"request-{i:032}", prompt, wanted.clone(), seed=i))
    engine.step()
    assert engine.stats.num_running == num_seqs, "not all sequences decode"
    steps = [_step(engine, scheduler, runner) for _ in range(num_steps)]
    return EngineOverhead(
        num_seqs,
        num_blocks,
        open_pool * MS,
        *(median(part) * MS for part in zip(*steps, strict=True)),
    )


def _step(engine: Engine, scheduler: Scheduler, runner: PackingRunner) -> Sequence[float]:
    """Seconds of the parts of one step, as `Engine.step` and the service take them."""
    start = time.perf_counter()
    plan = scheduler.schedule()
    scheduled = time.perf_counter()
    result = runner.run(plan)
    computed = time.perf_counter()
    events = scheduler.commit(plan, result)
    committed = time.perf_counter()
    _encode(engine.outputs(events))
    reported = time.perf_counter()
    return scheduled - start, runner.seconds, committed - computed, reported - committed
