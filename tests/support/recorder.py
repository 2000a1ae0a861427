"""Runs requests through the real scheduler and a real runner, and keeps the bits of what was drawn from."""

from array import array
from dataclasses import dataclass, field, replace

import numpy as np

from octavo.config import SchedulingPolicy, SpeculationConfig
from octavo.core.block_tables import BlockTables
from octavo.core.costs import RestoreCosts
from octavo.core.events import RequestEndEvent, TokenEvent
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import StepPlan, StepResult, TokenLogprobs
from octavo.core.tiers import Tiers
from octavo.core.usage import KvUsage
from octavo.engine.prefix_store import PrefixStore
from octavo.engine.swap_file import SwapFile
from octavo.engine.tiered_runner import TieredRunner
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
    _after_guesses: set[tuple[int, int]] = field(default_factory=set)

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
            samples = iter(seq.samples)
            for offset in seq.draw_offsets:
                bits = np.ascontiguousarray(logits[row + offset]).tobytes()
                for _ in seq.sampling:
                    sample = next(samples)
                    self._keep(
                        (sample.seq_id, sample.output_index),
                        bits,
                        is_guess=offset > seq.draw_offsets.start,
                    )
            row += len(seq.token_ids)
        return result

    def close(self) -> None:
        self.inner.close()

    def _keep(self, key: tuple[int, int], bits: bytes, *, is_guess: bool) -> None:
        """Where a guess was wrong, the rows after it are drawn from again."""
        assert key not in self.bits or key in self._after_guesses, "a token was drawn twice"
        self.bits[key] = bits
        (self._after_guesses.add if is_guess else self._after_guesses.discard)(key)


@dataclass
class Outcome:
    """What became of one request."""

    tokens: list[list[int]]
    """By sample."""
    bits: list[list[bytes]]
    logprobs: list[list[TokenLogprobs | None]]
    num_preemptions: int
    num_cached_tokens: int
    num_guessed: int
    """Tokens guessed in the whole run."""
    usage: KvUsage
    """At its end."""


def serve(
    runner: ForwardRunner,
    prompts: list[list[int]],
    params: list[SamplingParams] | SamplingParams = GREEDY,
    *,
    max_num_batched_tokens: int = 512,
    max_num_seqs: int = 64,
    num_blocks: int | None = None,
    prefix_caching: bool = True,
    speculation: SpeculationConfig | None = None,
    costs: RestoreCosts | None = None,
    swap: SwapFile | None = None,
    store: PrefixStore | None = None,
) -> list[Outcome]:
    """Submit all prompts at once and run until they are done.

    `num_blocks` below the runner's makes the pool small, so that sequences are preempted. `swap` and `store` are closed.
    """
    if isinstance(params, SamplingParams):
        params = [params] * len(prompts)
    recorder = Recorder(runner)
    tables = BlockTables(num_blocks or runner.num_blocks, runner.block_size)
    num_swap_slots = 0 if swap is None else swap.num_slots
    tiers = Tiers(tables, costs, num_swap_slots=num_swap_slots, stored=store)
    tiered = TieredRunner(recorder, runner, tiers.costs, swap=swap, store=store)
    scheduler = Scheduler(
        tables,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=tables.num_blocks * runner.block_size,
        policy=SchedulingPolicy.FCFS,
        end_token_ids=frozenset({0}),
        prefix_caching=prefix_caching,
        speculation=speculation,
        tiers=tiers,
    )
    requests = [
        Request(str(i), array("i", prompt), p, seed=1000 + i)
        for i, (prompt, p) in enumerate(zip(prompts, params, strict=True))
    ]
    for request in requests:
        scheduler.add(request)
    tokens: dict[tuple[str, int], list[int]] = {}
    logprobs: dict[tuple[str, int], list[TokenLogprobs | None]] = {}
    ends: dict[str, RequestEndEvent] = {}
    while scheduler.has_work:
        plan = scheduler.schedule()
        for event in scheduler.commit(plan, tiered.run(plan)):
            if isinstance(event, TokenEvent):
                key = (event.request_id, event.index)
                tokens.setdefault(key, []).append(event.token_id)
                logprobs.setdefault(key, []).append(event.logprobs)
            elif isinstance(event, RequestEndEvent):
                assert event.error is None, event.error
                ends[event.request_id] = event
    while (saves := scheduler.saves()) is not None:
        tiered.run(saves)
    tiered.let_go()
    usage = scheduler.usage()
    assert (usage.num_blocks_referenced, usage.num_swap_slots_used) == (0, 0)
    return [
        Outcome(
            [tokens[request.request_id, i] for i in range(request.params.n)],
            [
                [recorder.bits[sequence.seq_id, j] for j in range(sequence.num_outputs)]
                for sequence in request.sequences
            ],
            [logprobs[request.request_id, i] for i in range(request.params.n)],
            ends[request.request_id].num_preemptions,
            ends[request.request_id].num_cached_tokens,
            scheduler.speculation.num_draft_tokens,
            usage,
        )
        for request in requests
    ]
