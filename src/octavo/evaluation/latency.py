"""How long steps take: steady decoding at one context length, prompts by themselves, and a single stream.

Decoding and prompts are plans made by hand, run by the runner directly: no scheduler, no engine. The single
stream is a request to the engine.
"""

import random
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Runner, Sampling, SeqStep, StepPlan, StepResult
from octavo.engine.loop import Engine
from octavo.engine.messages import Submit
from octavo.engine.named_errors import error_named
from octavo.engine.prompts import token_id_array
from octavo.evaluation.percentiles import Summary, median, summarize
from octavo.evaluation.profiles import (
    Profile,
    ProfiledRunner,
    profile_total,
    profile_typical,
)
from octavo.progress import Progress, silent

WARM_UP_STEPS = 3
PREFILL_PASSES = 3
MS = 1000.0
_GREEDY = SamplingParams(temperature=0.0, max_tokens=None)


@dataclass(frozen=True, slots=True)
class Decode:
    """Steps in which each of `batch` sequences gets one token, with `context` keys each."""

    batch: int
    context: int
    step_ms: Summary
    plan: StepPlan
    """One of the steps."""
    profile: Profile | None = None
    """Of steps of their own."""

    @property
    def output_tokens_per_s(self) -> float:
        """At the median step."""
        return self.batch / self.step_ms.p50 * MS


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompts computed in the fewest steps that the token budget allows."""

    num_prompts: int
    prompt_len: int
    passes_s: tuple[float, ...]
    """Time of each pass over all prompts."""
    plans: tuple[StepPlan, ...]
    """The steps of a pass."""
    profile: Profile | None = None
    """Of one more pass."""

    @property
    def tokens_per_s(self) -> float:
        """Of the median pass."""
        return self.num_prompts * self.prompt_len / median(self.passes_s)


@dataclass(frozen=True, slots=True)
class SingleStream:
    """One request alone in the engine."""

    prompt_len: int
    num_output_tokens: int
    ttft_ms: float
    token_ms: Summary | None
    """Between tokens; None for one token."""

    @property
    def output_tokens_per_s(self) -> float | None:
        """At the median pause between tokens."""
        return MS / self.token_ms.p50 if self.token_ms else None


class Sequences:
    """Made-up sequences of random tokens, each with pages of its own.

    The pages of all are in random order, as a pool that has been busy for long hands them out.
    """

    def __init__(
        self, count: int, length: int, *, block_size: int, vocab_size: int, seed: int = 0
    ) -> None:
        source = random.Random(seed)
        self._block_size = block_size
        blocks_each = -(-length // block_size)
        pages = list(range(count * blocks_each))
        source.shuffle(pages)
        self._tables = [
            array("i", pages[i * blocks_each : (i + 1) * blocks_each]) for i in range(count)
        ]
        self._token_ids = [
            array("i", (source.randrange(vocab_size) for _ in range(length))) for _ in range(count)
        ]

    def __len__(self) -> int:
        return len(self._tables)

    def prompt_plans(self, length: int, budget: int) -> Iterator[StepPlan]:
        """The first `length` tokens of all, `budget` tokens a step; each draws a token at its end."""
        steps: list[SeqStep] = []
        room = budget
        for seq_id in range(len(self)):
            start = 0
            while start < length:
                count = min(room, length - start)
                steps.append(self._step(seq_id, start, count, draws=start + count == length))
                start += count
                room -= count
                if room == 0:
                    yield StepPlan(0, tuple(steps))
                    steps, room = [], budget
        if steps:
            yield StepPlan(0, tuple(steps))

    def decode_plan(self, batch: int, context: int) -> StepPlan:
        """The token at position `context` - 1 of the first `batch` sequences, computed (again) and followed by a draw."""
        steps = (self._step(i, context - 1, 1, draws=True) for i in range(batch))
        return StepPlan(0, tuple(steps))

    def take(self, result: StepResult, context: int) -> None:
        """Put the tokens drawn for a `decode_plan` where the next one computes them."""
        for token_ids, token_id in zip(self._token_ids, result.token_ids, strict=False):
            token_ids[context - 1] = token_id

    def _step(self, seq_id: int, start: int, count: int, *, draws: bool) -> SeqStep:
        token_ids, end = self._token_ids[seq_id], start + count
        sampling = (Sampling(seq_id, _GREEDY, 0, end),) if draws else ()
        table = self._tables[seq_id][: -(-end // self._block_size)]
        return SeqStep(seq_id, token_ids[start:end], start, table, sampling)


def num_blocks_needed(batch: int, context: int, prompts: int, prompt_len: int, block: int) -> int:
    """Pages that all measurements can do with, one after another."""
    return max(batch * -(-context // block), prompts * -(-prompt_len // block))


def measure_prefill(
    runner: Runner,
    sequences: Sequences,
    prompt_len: int,
    budget: int,
    *,
    profiled: ProfiledRunner | None = None,
    progress: Progress = silent,
) -> Prefill:
    """Compute all prompts, several times over. `profiled` is the runner, if its ops are to be timed as well."""
    plans = tuple(sequences.prompt_plans(prompt_len, budget))
    passes = []
    for i in range(PREFILL_PASSES):
        progress("prompts", i / PREFILL_PASSES)
        passes.append(_run_all(runner, plans))
    profile = None if profiled is None else profile_total(profiled, plans)
    progress("prompts", 1.0)
    return Prefill(len(sequences), prompt_len, tuple(passes), plans, profile)


def measure_decode(
    runner: Runner,
    sequences: Sequences,
    batches: Sequence[int],
    context: int,
    num_steps: int,
    budget: int,
    *,
    profiled: ProfiledRunner | None = None,
    progress: Progress = silent,
) -> list[Decode]:
    """Fill the contexts, then decode in each batch size. `profiled` as in `measure_prefill`."""
    progress("filling contexts", 0.0)
    _run_all(runner, tuple(sequences.prompt_plans(context, budget)))
    found = []
    for batch in batches:
        stage = f"batch {batch}"
        _decode(runner, sequences, batch, context, WARM_UP_STEPS)
        seconds = _decode(runner, sequences, batch, context, num_steps, progress, stage)
        step_ms = summarize(seconds, MS)
        assert step_ms is not None
        plan = sequences.decode_plan(batch, context)
        profile = None if profiled is None else profile_typical(profiled, [plan] * num_steps)
        found.append(Decode(batch, context, step_ms, plan, profile))
    return found


def measure_single_stream(
    engine: Engine, prompt_len: int, num_tokens: int, vocab_size: int, progress: Progress = silent
) -> SingleStream:
    """Run one greedy request alone, after one like it to warm up. Raises what it fails with."""
    progress("single stream", 0.0)
    _stream(engine, prompt_len, 2, vocab_size, seed=1)
    engine.reset_prefix_cache()
    start, times = _stream(engine, prompt_len, num_tokens, vocab_size, seed=2)
    progress("single stream", 1.0)
    return SingleStream(
        prompt_len,
        len(times),
        (times[0] - start) * MS,
        summarize([b - a for a, b in pairwise(times)], MS),
    )


def _run_all(runner: Runner, plans: Sequence[StepPlan]) -> float:
    """Seconds that the runner takes for these steps."""
    start = time.perf_counter()
    for plan in plans:
        runner.run(plan)
    return time.perf_counter() - start


def _decode(
    runner: Runner,
    sequences: Sequences,
    batch: int,
    context: int,
    num_steps: int,
    progress: Progress = silent,
    stage: str = "",
) -> list[float]:
    """Seconds of each step."""
    seconds = []
    for i in range(num_steps):
        plan = sequences.decode_plan(batch, context)
        start = time.perf_counter()
        result = runner.run(plan)
        seconds.append(time.perf_counter() - start)
        sequences.take(result, context)
        progress(stage, (i + 1) / num_steps)
    return seconds


def _stream(
    engine: Engine, prompt_len: int, num_tokens: int, vocab_size: int, *, seed: int
) -> tuple[float, list[float]]:
    """When a request was submitted, and when each of its tokens came."""
    source = random.Random(seed)
    prompt = token_id_array([source.randrange(vocab_size) for _ in range(prompt_len)])
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    start = time.perf_counter()
    engine.submit(Submit(f"stream-{seed}", prompt.tobytes(), params, seed=0))
    times: list[float] = []
    while engine.has_work:
        outputs = engine.step()
        now = time.perf_counter()
        times += [now for output in outputs.sequences for _ in output.token_ids]
        for end in outputs.ends:
            if end.error is not None:
                raise error_named(end.error_type, f"the single stream: {end.error}")
    return start, times
