"""The simulator does what the engine does: pages, copies and preemptions are the same in every step."""

from array import array
from collections.abc import Mapping
from dataclasses import replace

import pytest

from octavo.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.core.step import Runner, SeqId, StepPlan, StepResult
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
    """Remembers what every plan was, and what each sequence got."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.plans: list[StepPlan] = []
        self.tokens: dict[SeqId, list[int]] = {}

    def run(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        result = super().run(plan)
        receivers = [sampling.seq_id for seq in plan.seqs for sampling in seq.sampling]
        for seq_id, token in zip(receivers, result.token_ids, strict=True):
            self.tokens.setdefault(seq_id, []).append(token)
        return result


def recorded(n: int, rate: float, *, prefix_len: int = 0) -> list[SimRequest]:
    people = Population(Lengths(25, 1.0), Lengths(30, 0.7), n=n, prefix_len=prefix_len)
    made = make_requests(people, rate, 24, max_model_len=CONTEXT, seed=5)
    return [request.in_vocabulary(VOCAB_SIZE) for request in made]


def at_once(n: int, *, prefix_caching: bool) -> list[SimRequest]:
    """All requests come at once, so that no clock decides which step they enter. Some begin alike, some are equal."""
    made = recorded(n, 1.0, prefix_len=20 if prefix_caching else 0)
    if prefix_caching:
        made += [replace(r, request_id=f"{r.request_id} again") for r in made[::4]]
    return [replace(request, arrival_s=0.0) for request in made]


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_every_step_is_the_same(n: int, prefix_caching: bool) -> None:
    requests = at_once(n, prefix_caching=prefix_caching)
    watchers: list[PlanWatcher] = []

    def watch(runner: Runner) -> PlanWatcher:
        watchers.append(PlanWatcher(runner))
        return watchers[0]

    config = EngineConfig(
        model=ModelConfig(str(tiny_folder("llama")), max_model_len=CONTEXT),
        cache=CacheConfig(BLOCK, num_blocks=BLOCKS, prefix_caching=prefix_caching),
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
        span,
        num_blocks=BLOCKS,
        block_size=BLOCK,
        max_model_len=CONTEXT,
        limits=LIMITS,
        prefix_caching=prefix_caching,
    )
    simulated = plans_of(batcher, with_answers(requests, watchers[0].tokens))
    assert list(map(memory_of, simulated)) == list(map(memory_of, watchers[0].plans))
    assert [work_of(p, span) for p in simulated] == [work_of(p, span) for p in watchers[0].plans]
    assert batcher.num_copies == num_copies
    assert batcher.counts == measured.counts
    # By both ways that need no swap space; answers to one prompt leave together, and keep nothing.
    assert batcher.counts.num_preemptions > batcher.counts.num_dropped_tails
    assert (batcher.counts.num_dropped_tails > 0) == (n == 1)
    assert (batcher.counts.num_cached_tokens > 0) == prefix_caching
    assert (num_copies > 0) == (n > 1 or prefix_caching)


def with_answers(requests: list[SimRequest], tokens: Mapping[SeqId, list[int]]) -> list[SimRequest]:
    """What was answered, so that the simulator's cache holds the same. Sequences are numbered in order of arrival."""
    numbers = iter(sorted(tokens))
    return [
        replace(r, answers=tuple(array("i", tokens[next(numbers)]) for _ in range(r.n)))
        for r in requests
    ]


def plans_of(batcher: PagedBatcher, requests: list[SimRequest]) -> list[StepPlan]:
    for request in requests:
        batcher.add(request)
    plans: list[StepPlan] = []
    while batcher.num_open:
        batcher.step()
        assert batcher.last_plan is not None
        plans.append(batcher.last_plan)
    return plans


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
