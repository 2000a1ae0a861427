"""What sharing saves on a model: pages of samples, beams and clients with the same instructions, and the clients' time."""

import random
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.core.beam_search import BeamSearch, BeamSearchParams
from octavo.core.runner_around import RunnerAround
from octavo.core.sampling_params import SamplingParams
from octavo.core.step import Runner, SeqStep, StepPlan, StepResult
from octavo.engine.build import BuiltEngine
from octavo.engine.messages import RequestEnd, Submit
from octavo.engine.named_errors import error_named
from octavo.offline.beams import BeamBatch
from octavo.offline.prompts import ParsedPrompt

PROMPT_SEED = 7


class PageCounter(RunnerAround):
    """A runner that looks at each plan before another computes it: what its tables hold, and what its tokens say."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.reset()

    def reset(self) -> None:
        """Count from here on."""
        self.num_tokens = 0
        """Computed."""
        self.most_pages = 0
        """Most that the sequences of a step held, each page once."""
        self.most_unshared = 0
        """Most that they would have held without sharing."""
        self.most_saved = 0
        """Most that a step's sequences saved."""
        self.most_predicted = 0
        """Most that they had to save: full pages before the step whose tokens, from the first on, are the same."""
        self.num_steps_off = 0
        """Steps in which another number of pages was saved than the tokens say."""

    def run(self, plan: StepPlan) -> StepResult:
        """Count, and compute."""
        self.num_tokens += plan.num_tokens
        unshared = sum(len(step.block_table) for step in plan.seqs)
        pages = len({block for step in plan.seqs for block in step.block_table})
        predicted = self._predicted_savings(plan.seqs)
        self.most_pages = max(self.most_pages, pages)
        self.most_unshared = max(self.most_unshared, unshared)
        self.most_saved = max(self.most_saved, unshared - pages)
        self.most_predicted = max(self.most_predicted, predicted)
        self.num_steps_off += unshared - pages != predicted
        return super().run(plan)

    def _predicted_savings(self, steps: Sequence[SeqStep]) -> int:
        size = self.block_size
        num_full, seen = 0, set()
        for step in steps:
            known, key = step.history, 0
            for end in range(size, step.start + 1, size):
                key = hash((key, known[end - size : end].tobytes()))
                seen.add(key)
                num_full += 1
        return num_full - len(seen)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Pages and computed tokens of some sequences that share a beginning."""

    kind: str
    count: int
    """Samples, or beams."""
    num_computed_tokens: int
    peak_pages: int
    peak_pages_unshared: int
    peak_saved: int
    peak_saved_predicted: int
    """By the tokens alone."""
    num_steps_off: int
    """Steps that saved more or fewer pages than predicted."""
    booked_peak_pages: int | None = None
    """By the engine's account of the request."""


@dataclass(frozen=True, slots=True)
class SamplesTogether:
    """n samples as one request, beside n requests that share nothing."""

    n: int
    prompt_tokens: int
    output_tokens: int
    computed_together: int
    computed_apart: int
    peak_pages_together: int
    peak_pages_apart: int

    @property
    def peak_ratio(self) -> float:
        """How many times the pages the requests need."""
        return self.peak_pages_apart / self.peak_pages_together


@dataclass(frozen=True, slots=True)
class ClientsTogether:
    """Clients with the same instructions that come at once to an engine which has not seen them."""

    num_clients: int
    seconds_cached: float
    seconds_uncached: float
    computed_cached: int
    computed_uncached: int

    @property
    def speedup(self) -> float:
        """How many times as fast."""
        return self.seconds_uncached / self.seconds_cached


class CountedEngine:
    """An engine whose pages are counted; made by `build` with a `PageCounter` around its runner."""

    def __init__(self, build: Callable[[Callable[[Runner], Runner]], BuiltEngine]) -> None:
        def wrap(runner: Runner) -> Runner:
            self.counter = PageCounter(runner)
            return self.counter

        self.built = build(wrap)
        self.engine = self.built.engine
        self._num_requests = 0
        # The first steps read pages of memory for the first time.
        self.run([Wanted(self.prompt(64, 1), 8)])
        self.forget()

    def prompt(self, length: int, number: int) -> "array[int]":
        """Token ids without meaning; each number has its own."""
        draw = random.Random(PROMPT_SEED + number)
        vocab_size = self.built.ready.vocab_size
        return array("i", (draw.randrange(vocab_size // 2, vocab_size) for _ in range(length)))

    def forget(self) -> None:
        """Nothing is cached or counted any more."""
        self.engine.reset_prefix_cache()
        self.counter.reset()

    def run(self, wanted: "Sequence[Wanted]") -> tuple[float, list[RequestEnd]]:
        """All at once, to their ends: seconds, and last words. Raises what a request fails with."""
        start, ends = time.perf_counter(), []
        for request in wanted:
            params = SamplingParams(
                temperature=1.0, n=request.n, max_tokens=request.output_len, ignore_eos=True
            )
            name = f"sharing-{self._num_requests}"
            self._num_requests += 1
            token_ids = request.prompt.tobytes()
            self.engine.submit(
                Submit(name, token_ids, params, self._num_requests, wants_kv_usage=True)
            )
        while self.engine.has_work:
            ends += self.engine.step().ends
        for end in ends:
            if end.error is not None:
                raise error_named(end.error_type, end.error)
        return time.perf_counter() - start, ends

    def sharing(self, kind: str, count: int, booked: int | None = None) -> Sharing:
        """What was counted since `forget`."""
        counter = self.counter
        return Sharing(
            kind,
            count,
            counter.num_tokens,
            counter.most_pages,
            counter.most_unshared,
            counter.most_saved,
            counter.most_predicted,
            counter.num_steps_off,
            booked,
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prompt, and how many tokens of how many samples."""

    prompt: "array[int]"
    output_len: int
    n: int = 1


def measure_samples(counted: CountedEngine, n: int, prompt_len: int, output_len: int) -> Sharing:
    """n samples of a prompt."""
    counted.forget()
    _, ends = counted.run([Wanted(counted.prompt(prompt_len, 0), output_len, n)])
    usage = ends[0].kv_usage
    return counted.sharing("samples", n, None if usage is None else usage.peak_blocks)


def measure_beams(counted: CountedEngine, width: int, prompt_len: int, output_len: int) -> Sharing:
    """A beam search of this width."""
    counted.forget()
    params = BeamSearchParams(beam_width=width, max_tokens=output_len, ignore_eos=True)
    search = BeamSearch(params, frozenset(), output_len)
    prompt = ParsedPrompt(None, counted.prompt(prompt_len, 0))
    BeamBatch(counted.engine, counted.built.ready.vocab_size).run([prompt], [search])
    return counted.sharing("beams", width)


def measure_together(
    cached: CountedEngine, uncached: CountedEngine, n: int, prompt_len: int, output_len: int
) -> SamplesTogether:
    """n samples as one request, and as n requests without a prefix cache."""
    together = measure_samples(cached, n, prompt_len, output_len)
    uncached.forget()
    prompt = uncached.prompt(prompt_len, 0)
    uncached.run([Wanted(prompt, output_len) for _ in range(n)])
    apart = uncached.sharing("requests", n)
    return SamplesTogether(
        n,
        prompt_len,
        output_len,
        together.num_computed_tokens,
        apart.num_computed_tokens,
        together.peak_pages,
        apart.peak_pages,
    )


def measure_clients(
    cached: CountedEngine,
    uncached: CountedEngine,
    num_clients: int,
    shared_len: int,
    own_len: int,
    output_len: int,
) -> ClientsTogether:
    """Prompts that begin with the same `shared_len` tokens, all at once, cold."""
    seconds: list[float] = []
    computed: list[int] = []
    for counted in (cached, uncached):
        counted.forget()
        shared = counted.prompt(shared_len, 0)
        wanted = [
            Wanted(shared + counted.prompt(own_len, 1 + i), output_len) for i in range(num_clients)
        ]
        seconds.append(counted.run(wanted)[0])
        computed.append(counted.counter.num_tokens)
    return ClientsTogether(num_clients, seconds[0], seconds[1], computed[0], computed[1])
