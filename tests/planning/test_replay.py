"""The simulator does what the engine does: pages, copies and preemptions are the same in every step."""

from array import array
from dataclasses import replace

import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.core.step import Runner, StepPlan, StepResult
from octavo.engine.build import build_engine
from octavo.evaluation.replay import replay
from octavo.evaluation.step_profile import PlanKeeper
from octavo.planning.paged import PagedBatcher
from octavo.planning.requests import SimRequest
from octavo.planning.work import AttentionSpan, work_of
from octavo.planning.workloads import Lengths, Population, make_requests
from support.tiny_models import VOCAB_SIZE, tiny_folder

BLOCKS, BLOCK, CONTEXT = 20, 16, 128
LIMITS = SchedulerConfig(64, 8)


class PlanWatcher(PlanKeeper):
    """Remembers what every plan was."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.plans: list[StepPlan] = []

    def run(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        return super().run(plan)


def recorded(n: int, turns_at_once: float) -> list[SimRequest]:
    people = Population(Lengths(25, 1.0), Lengths(30, 0.7), n=n)
    made = make_requests(people, turns_at_once, 24, max_model_len=CONTEXT, seed=5)
    return [request.in_vocabulary(VOCAB_SIZE) for request in made]


@pytest.mark.parametrize("n", [1, 3])
def test_every_step_is_the_same(n: int) -> None:
    """All requests come at once, so that no clock decides which step they enter."""
    requests = [replace(request, arrival_s=0.0) for request in recorded(n, 1.0)]
    watchers: list[PlanWatcher] = []

    def watch(runner: Runner) -> PlanWatcher:
        watchers.append(PlanWatcher(runner))
        return watchers[0]

    config = EngineConfig(
        model=ModelConfig(str(tiny_folder("llama")), max_model_len=CONTEXT),
        cache=CacheConfig(BLOCK, num_blocks=BLOCKS, prefix_caching=False),
        scheduler=LIMITS,
        speculation=False,
    )
    built = build_engine(config, wrap_runner=watch)
    span = AttentionSpan.of(built.model.spec.layers)
    try:
        measured = replay(built.engine, watchers[0], span, requests)
        num_copies = built.engine.stats.num_block_copies
    finally:
        built.engine.close()
    batcher = PagedBatcher(
        span, num_blocks=BLOCKS, block_size=BLOCK, max_model_len=CONTEXT, limits=LIMITS
    )
    for request in requests:
        batcher.add(request)
    simulated: list[StepPlan] = []
    while batcher.num_open:
        batcher.step()
        assert batcher.last_plan is not None
        simulated.append(batcher.last_plan)
    assert list(map(memory_of, simulated)) == list(map(memory_of, watchers[0].plans))
    assert [work_of(p, span) for p in simulated] == [work_of(p, span) for p in watchers[0].plans]
    assert batcher.num_copies == num_copies
    assert batcher.num_preemptions == measured.num_preemptions > 0
    assert (num_copies > 0) == (n > 1)


def memory_of(plan: StepPlan) -> object:
    """The pages of everybody, by number, and the copies."""
    return [(seq.seq_id, seq.start, list(seq.block_table)) for seq in plan.seqs], plan.copies


def test_measured_and_simulated_figures_have_the_same_requests() -> None:
    requests = recorded(1, 200.0)
    keepers: list[PlanKeeper] = []

    def keep(runner: Runner) -> PlanKeeper:
        keepers.append(PlanKeeper(runner))
        return keepers[0]

    built = build_engine(
        EngineConfig(
            model=ModelConfig(str(tiny_folder("llama")), max_model_len=CONTEXT),
            cache=CacheConfig(BLOCK, num_blocks=400),
            speculation=False,
        ),
        wrap_runner=keep,
    )
    try:
        span = AttentionSpan.of(built.model.spec.layers)
        recorder = replay(built.engine, keepers[0], span, requests)
    finally:
        built.engine.close()
    for request in requests:
        served = recorder.served[request.request_id]
        assert served.first_token_s is not None and served.end_s is not None
        assert request.arrival_s < served.first_token_s <= served.end_s
    assert sum(recorder.pause_counts) == sum(r.output_len - 1 for r in requests)
    assert array("d", sorted(recorder.pauses))[0] > 0
