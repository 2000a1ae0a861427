"""Has something become slower? Ratios of two things measured in turns in this process, never times by themselves.

Whatever else a machine does makes things slower, never faster: each side of a ratio is the shortest of many short
measurements, and a ratio above its limit is measured again before it counts. Where other processes took more than 5 %
of the machine meanwhile, that is done by the CPU time of this process, which is not longer for being interrupted.

Each limit lies between what the ratio is and twice that, so that a side that takes twice as long is found; that is
tested, too. When it is not found any more, the ratio has become better: lower its limit.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from octavo import _C
from octavo.config import CacheConfig, EngineConfig, ModelConfig
from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Runner, StepPlan, StepResult
from octavo.engine.build import build_engine
from octavo.engine.messages import Submit
from octavo.engine.prompts import token_id_array
from octavo.evaluation.comparison.pairs import MOST_OTHERS
from octavo.evaluation.comparison.probes import Reading, Watch
from octavo.evaluation.latency import Sequences
from octavo.evaluation.op_costs import CostModel
from octavo.evaluation.peaks import calibrate
from octavo.evaluation.percentiles import median
from octavo.evaluation.runners import opened_runner
from octavo.models.model import Model, load_model

pytestmark = pytest.mark.model

CONTEXT, BATCH, PROMPT, ROUNDS, ATTEMPTS = 330, 32, 256, 8, 3
NUM_BLOCKS, BUDGET = 1024, 512


@dataclass(frozen=True)
class Clock:
    """How long something takes: by the clock on the wall, or by what it had of the processors."""

    whole: Callable[[], float]
    """Seconds of a step, all threads of `per` together."""
    own: Callable[[], float]
    """Seconds of this thread."""
    per: int


WALL = Clock(time.perf_counter, time.perf_counter, 1)


@dataclass(frozen=True)
class Ratio:
    """A limit that must hold, and who can tell."""

    name: str
    limit: float
    measure: Callable[["Machine", Clock, bool], float]
    """Takes whether its upper side shall take twice as long."""


class Twice:
    """A runner that does everything twice: the same results in twice the time."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, plan: StepPlan) -> StepResult:
        self._runner.run(plan)
        return self._runner.run(plan)


class Machine:
    """SmolLM2 in two cache formats, with contexts that are filled."""

    def __init__(self, model: Model, bf16: Runner, int8: Runner, num_threads: int) -> None:
        self.model = model
        self.bf16, self.int8 = bf16, int8
        self.num_threads = num_threads
        self._sequences = Sequences(
            BATCH, CONTEXT, block_size=bf16.block_size, vocab_size=model.spec.vocab_size
        )
        for runner in (bf16, int8):
            for plan in self._sequences.prompt_plans(CONTEXT, BUDGET):
                runner.run(plan)

    def decode(self, batch: int) -> StepPlan:
        return self._sequences.decode_plan(batch, CONTEXT)

    def prompt(self) -> StepPlan:
        return next(self._sequences.prompt_plans(PROMPT, PROMPT))


def shortest(clock: Clock, *sides: tuple[Callable[[StepPlan], object], StepPlan]) -> list[float]:
    """The shortest time of each step, run in turns."""
    best = [float("inf")] * len(sides)
    for _ in range(ROUNDS):
        for i, (run, plan) in enumerate(sides):
            start = clock.whole()
            run(plan)
            best[i] = min(best[i], clock.whole() - start)
    return best


def upper(runner: Runner, twice: bool) -> Callable[[StepPlan], object]:
    return Twice(runner).run if twice else runner.run


def batching(machine: Machine, clock: Clock, twice: bool) -> float:
    many = (upper(machine.bf16, twice), machine.decode(BATCH))
    a, b = shortest(clock, many, (machine.bf16.run, machine.decode(1)))
    return a / b


def int8_cache(machine: Machine, clock: Clock, twice: bool) -> float:
    plan = machine.decode(BATCH)
    a, b = shortest(clock, (upper(machine.int8, twice), plan), (machine.bf16.run, plan))
    return a / b


def prompts(machine: Machine, clock: Clock, twice: bool) -> float:
    prompt = (upper(machine.bf16, twice), machine.prompt())
    a, b = shortest(clock, prompt, (machine.bf16.run, machine.decode(1)))
    return a / b / PROMPT


def roofline(machine: Machine, clock: Clock, twice: bool) -> float:
    """How many times longer a prompt takes than bandwidth and arithmetic of this machine allow its ops."""
    plan = machine.prompt()
    peaks = calibrate(machine.num_threads, _C.read_bandwidth(64 << 20, machine.num_threads))
    model = machine.model
    costs = CostModel(model.spec, model.weights, "auto", "bfloat16").step(plan).values()
    least = sum(peaks.least_seconds(cost.num_bytes, cost.by_kind) for cost in costs)
    (seconds,) = shortest(clock, (upper(machine.bf16, twice), plan))
    return seconds / clock.per / least


def engine(machine: Machine, clock: Clock, twice: bool) -> float:
    """What the engine adds to the steps of 32 requests; `twice`: as much again."""
    inside: list[float] = []

    def timed(runner: Runner) -> Runner:
        run = runner.run

        def run_and_note(plan: StepPlan) -> StepResult:
            start = clock.own()
            result = run(plan)
            inside.append(clock.own() - start)
            return result

        runner.run = run_and_note  # type: ignore[method-assign]
        return runner

    config = EngineConfig(
        model=ModelConfig(model=str(machine.model.path)),
        cache=CacheConfig(num_blocks=256),
        speculation=False,  # its steps have several tokens of a request
    )
    built = build_engine(config, wrap_runner=timed)
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    for i in range(BATCH):
        prompt = token_id_array([100 + i] * 16).tobytes()
        built.engine.submit(Submit(f"{i}", prompt, params, seed=0))
    added = []
    while built.engine.has_work:
        start = clock.own()
        built.engine.step()
        added.append((2 if twice else 1) * (clock.own() - start - inside[-1]) / inside[-1])
    built.engine.close()
    return median(added)


RATIOS = (
    Ratio("step of 32 sequences / step of 1", 8.2, batching),
    Ratio("step with int8 cache / with bf16 cache, 32 sequences", 1.25, int8_cache),
    Ratio("token of a prompt / token of one stream", 0.13, prompts),
    Ratio("step of a prompt / roofline of its ops", 3.8, roofline),
    Ratio("engine / step of 32 sequences", 0.028, engine),
)


@pytest.fixture(scope="module")
def machine(smollm2_path: Path) -> Iterator[Machine]:
    model = load_model(smollm2_path)
    settings = [
        EngineConfig(model=ModelConfig(model=str(smollm2_path)), cache=CacheConfig(kv_cache_dtype=dtype))
        for dtype in ("auto", "int8")
    ]  # fmt: skip
    with (
        opened_runner(settings[0], model, NUM_BLOCKS, max_tokens=BUDGET) as (bf16, resolved),
        opened_runner(settings[1], model, NUM_BLOCKS, max_tokens=BUDGET) as (int8, _),
    ):
        yield Machine(model, bf16, int8, resolved.num_threads)


def measured(ratio: Ratio, machine: Machine) -> float:
    """The ratio, measured again while it is above its limit."""
    by_cpu = Clock(time.process_time, time.thread_time, machine.num_threads)
    found = []
    for _ in range(ATTEMPTS):
        watch = Watch(lambda: Reading(1.0, 1.0))
        found.append(ratio.measure(machine, WALL, False))
        if watch.end().others > MOST_OTHERS:
            found.append(ratio.measure(machine, by_cpu, False))
        if min(found) <= ratio.limit:
            break
    return min(found)


def test_nothing_has_become_slower(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    found = [(ratio, measured(ratio, machine)) for ratio in RATIOS]
    width = max(len(ratio.name) for ratio in RATIOS)
    with capsys.disabled():
        print()  # noqa: T201  # the table of the regression benchmark
        for ratio, value in found:
            print(f"{ratio.name:{width}}  {value:7.3f}  at most {ratio.limit:g}")  # noqa: T201
    assert [(ratio.name, value) for ratio, value in found if value > ratio.limit] == []


@pytest.mark.parametrize("ratio", RATIOS, ids=lambda ratio: ratio.name)
def test_twice_as_slow_is_found(ratio: Ratio, machine: Machine) -> None:
    assert max(ratio.measure(machine, WALL, True) for _ in range(ATTEMPTS)) > ratio.limit
