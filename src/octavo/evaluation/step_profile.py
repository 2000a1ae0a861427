"""What steps of the engine take, for `planning.fitting`: all sizes of batches, prompts among decodes, as in service."""

import math
import random
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from types import TracebackType

from octavo.config import EngineConfig
from octavo.core.runner_around import RunnerAround
from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Runner, StepPlan, StepResult
from octavo.engine.build import build_engine
from octavo.engine.loop import Engine
from octavo.engine.messages import Ready, Submit
from octavo.engine.prompts import token_id_array
from octavo.planning.work import AttentionSpan, StepWork, work_of
from octavo.progress import Progress, silent

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
PROMPT_LENS, OUTPUT_LENS = (8, 640), (2, 96)
"""Shortest and longest; in between all orders of magnitude are equally likely. Less where the context is shorter."""
WARM_UP_STEPS = 3
WAKES = 16
IDLE_S = 0.1
"""Before each of the WAKES."""
SHORT_PROMPTS = (8, 128)
"""Tokens of the prompts that are computed then."""


class PlanKeeper(RunnerAround):
    """A runner that remembers the last plan that it was given."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.plan: StepPlan | None = None

    def run(self, plan: StepPlan) -> StepResult:
        """As the runner inside."""
        self.plan = plan
        return super().run(plan)


class WatchedEngine:
    """An engine whose plans can be looked at. It guesses no tokens, and keeps no prefixes: a load may run again."""

    def __init__(self, config: EngineConfig, progress: Progress = silent) -> None:
        """Build it. Raises what `build_engine` raises."""
        keepers: list[PlanKeeper] = []

        def keep(runner: Runner) -> PlanKeeper:
            keepers.append(PlanKeeper(runner))
            return keepers[0]

        config = replace(
            config,
            speculation=False,
            speculative_config=None,
            cache=replace(config.cache, prefix_caching=False),
        )
        built = build_engine(config, progress=progress, wrap_runner=keep)
        self.engine: Engine = built.engine
        self.keeper = keepers[0]
        self.ready: Ready = built.ready
        self.span = AttentionSpan.of(built.model.spec.layers)

    def __enter__(self) -> "WatchedEngine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.engine.close()


def profile_steps(
    engine: Engine,
    keeper: PlanKeeper,
    span: AttentionSpan,
    *,
    vocab_size: int,
    max_model_len: int,
    max_num_seqs: int,
    seconds: float,
    seed: int = 0,
    progress: Progress = silent,
) -> list[tuple[StepWork, float]]:
    """Steps and their seconds, scheduling included; for each of BATCHES that runs an equal share of the time.

    `keeper` is the engine's runner. As soon as a request ends, another takes its place.
    """
    batches = [batch for batch in BATCHES if batch <= max_num_seqs]
    source = random.Random(seed)
    submits = _endless(source, vocab_size, max_model_len)
    found: list[tuple[StepWork, float]] = []
    for number, batch in enumerate(batches):
        progress("measuring steps", number / len(batches))
        end = time.perf_counter() + seconds / len(batches)
        num_open = num_steps = 0
        while time.perf_counter() < end:
            while num_open < batch:
                engine.submit(next(submits))
                num_open += 1
            start = time.perf_counter()
            outputs = engine.step()
            took = time.perf_counter() - start
            num_open -= len(outputs.ends)
            num_steps += 1
            if num_steps > WARM_UP_STEPS and keeper.plan is not None:
                found.append((work_of(keeper.plan, span), took))
        engine.abort_all()
    progress("measuring steps", 1.0)
    return found


def profile_wakes(
    engine: Engine, keeper: PlanKeeper, span: AttentionSpan, *, vocab_size: int, seed: int = 0
) -> list[tuple[StepWork, float]]:
    """First steps after IDLE_S in which nothing was to be done, and their seconds from the arrival on."""
    source = random.Random(f"wakes {seed}")
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    found: list[tuple[StepWork, float]] = []
    for number in range(WAKES):
        prompt = _prompt(source, _between(source, *SHORT_PROMPTS), vocab_size)
        time.sleep(IDLE_S)
        start = time.perf_counter()
        engine.submit(Submit(f"wake-{number}", prompt.tobytes(), params, seed=0))
        engine.step()
        took = time.perf_counter() - start
        assert keeper.plan is not None  # a step has just run
        found.append((work_of(keeper.plan, span), took))
    return found


def _endless(source: random.Random, vocab_size: int, max_model_len: int) -> Iterator[Submit]:
    shortest, longest = PROMPT_LENS
    longest = max(shortest, min(longest, max_model_len - OUTPUT_LENS[1]))
    for number in count():
        length = _between(source, shortest, longest)
        prompt = _prompt(source, length, vocab_size)
        params = SamplingParams(
            temperature=0.0, max_tokens=_between(source, *OUTPUT_LENS), ignore_eos=True
        )
        yield Submit(f"profile-{number}", prompt.tobytes(), params, seed=0)


def _prompt(source: random.Random, length: int, vocab_size: int) -> "array[int]":
    return token_id_array([source.randrange(vocab_size) for _ in range(length)])


def _between(source: random.Random, low: int, high: int) -> int:
    """A number whose logarithm is any with the same chance: few steps are long, and short prompts are as frequent as long."""
    return round(math.exp(source.uniform(math.log(low), math.log(high))))
