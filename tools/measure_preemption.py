"""Times the three methods of preemption on this machine with the default model, each where it is forced, and what is chosen.

    python tools/measure_preemption.py few-pages | all-pages | shared-prompt

Low-priority requests fill the pool; then requests of a better class come and take blocks from them. A figure is the median of
several runs in turns, with the smallest and the largest: seconds from the end of the prompts of the low class to the end of the last request.
"""

import argparse
import json
import sys
import time
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from octavo.backends.native.runner import NativeRunner
from octavo.checkpoints.locate import locate
from octavo.config import SchedulingPolicy
from octavo.core.block_tables import BlockTables
from octavo.core.costs import RestoreCosts
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.tiers import Tiers
from octavo.core.usage import KvUsage
from octavo.engine.swap_file import SwapFile
from octavo.engine.tiered_runner import TieredRunner
from octavo.evaluation.percentiles import median
from octavo.models.model import load_model

SWAP_BYTES = 2 << 30
MAX_TOKENS = 512


class Given(RestoreCosts):
    """Costs that nothing changes: they make one method the cheapest."""

    def learn_step(self, num_tokens: int, seconds: float) -> None:
        """Not learned."""

    def learn_page_out(self, seconds: float) -> None:
        """Not learned."""

    def learn_page_in(self, seconds: float) -> None:
        """Not learned."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What fills the pool, and what takes it. Lengths in tokens."""

    num_blocks: int
    num_low: int
    low_prompt: int
    low_output: int
    high_prompt: int
    high_steps: tuple[int, ...]
    """Steps after the prompts before which one of a better class arrives."""
    high_output: int = 16
    shares: int = 0
    """The first tokens of the prompts of the low class, which are the same."""
    max_num_seqs: int = 64
    prefix_caching: bool = True


WORKLOADS = {
    "few-pages": Workload(
        660, 2, 2_900, 130, 16, (10, 30, 50, 70, 90), max_num_seqs=2, prefix_caching=False
    ),
    "all-pages": Workload(330, 3, 1_600, 64, 4_800, (10,)),
    "shared-prompt": Workload(
        321, 13, 4_804, 12, 240, tuple(range(3, 23, 4)), high_output=2, shares=4_800
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run."""

    seconds: float
    usage: KvUsage
    costs: RestoreCosts

    @property
    def methods(self) -> Counter[str]:
        """How often each was used, in sequences."""
        tails, swaps = self.usage.num_dropped_tails, self.usage.num_swaps
        again = self.usage.num_preemptions - tails - swaps
        return Counter({"drop the tail": tails, "swap": swaps, "compute again": again})


CHOSEN = "chosen"
METHODS: dict[str, Given | None] = {
    "drop the tail": Given(token=1.0),
    "swap": Given(token=1e6, page_out=1e-9, page_in=1e-9),
    "compute again": Given(),
    CHOSEN: None,
}


def request(name: str, length: int, output: int, *, priority: int, shares: int = 0) -> Request:
    """A prompt whose first `shares` tokens others begin with, and whose rest nobody else has."""
    own = sum(map(ord, name))
    tokens = array("i", [(own * (i >= shares) + 31 * i) % 40_000 + 100 for i in range(length)])
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    return Request(name, tokens, params, 0, priority=priority)


def run(workload: Workload, runner: NativeRunner, given: Given | None) -> Outcome:
    """One run, timed from the end of the first prompts to the end of the last request."""
    costs = RestoreCosts() if given is None else given
    with TemporaryDirectory() as folder:
        swap = SwapFile(SWAP_BYTES, runner.page_bytes, Path(folder))
        swap.probe(costs)
        tables = BlockTables(workload.num_blocks, runner.block_size)
        tiered = TieredRunner(runner, runner, costs, swap=swap)
        scheduler = Scheduler(
            tables,
            max_num_batched_tokens=MAX_TOKENS,
            max_num_seqs=workload.max_num_seqs,
            max_model_len=8192,
            policy=SchedulingPolicy.PRIORITY,
            end_token_ids=frozenset(),
            prefix_caching=workload.prefix_caching,
            tiers=Tiers(tables, costs, num_swap_slots=swap.num_slots),
        )
        seconds = play(workload, scheduler, tiered)
        tiered.let_go()
    return Outcome(seconds, scheduler.usage(), costs)


def play(workload: Workload, scheduler: Scheduler, runner: TieredRunner) -> float:
    """Steps until all have ended. Returns the seconds of those after the first prompts."""
    length, shares = workload.low_prompt, workload.shares
    for number in range(workload.num_low):
        name, stays = f"low {number}", number == 0 and shares > 0  # what is shared is not lost
        scheduler.add(request(name, length, workload.low_output, priority=1 - stays, shares=shares))
    num_own = workload.num_low * (length - shares) + shares
    num_before = -(-num_own // MAX_TOKENS) + 2
    arrivals = {num_before + step for step in workload.high_steps}
    num_steps, seconds = 0, 0.0
    while scheduler.has_work:
        if num_steps in arrivals:
            name, output = f"high {num_steps}", workload.high_output
            scheduler.add(request(name, workload.high_prompt, output, priority=0))
        num_steps += 1
        start = time.perf_counter()
        plan = scheduler.schedule()
        result = runner.run(plan)
        scheduler.costs.learn_step(plan.num_tokens, time.perf_counter() - start)
        scheduler.commit(plan, result)
        if num_steps > num_before:
            seconds += time.perf_counter() - start
    return seconds


def measure(workload: Workload, repeats: int) -> dict[str, list[Outcome]]:
    """Runs of each method, in turns that begin with another each time."""
    model = load_model(locate("smollm2"))
    runner = NativeRunner(
        model.spec, model.weights, num_blocks=workload.num_blocks, block_size=16, num_threads=2
    )
    found: dict[str, list[Outcome]] = {name: [] for name in METHODS}
    names = list(METHODS)
    run(workload, runner, METHODS[CHOSEN])  # the first finds memory and files cold
    for _ in range(repeats):
        for name in names:
            found[name].append(run(workload, runner, METHODS[name]))
        names.append(names.pop(0))
    runner.close()
    return found


def report(outcomes: list[Outcome]) -> dict[str, Any]:
    """What runs of one method came to."""
    seconds = [outcome.seconds for outcome in outcomes]
    methods = sum((outcome.methods for outcome in outcomes), Counter())
    return {
        "seconds": median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "methods": {name: count / len(outcomes) for name, count in methods.items()},
    }


def main() -> None:
    """Print one line for each method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(WORKLOADS[arguments.workload], arguments.repeats)
    rows = {name: report(outcomes) for name, outcomes in found.items()}
    costs = found[CHOSEN][-1].costs
    prices = {
        "token_ms": 1e3 * (costs.token or 0.0),
        "page_ms": 1e3 * (costs.swapping(1, 1) or 0.0),
    }
    if arguments.json:
        sys.stdout.write(json.dumps({"methods": rows, **prices}) + "\n")
        return
    for name, row in rows.items():
        used = ", ".join(f"{method} {count:.3g}" for method, count in row["methods"].items())
        sys.stdout.write(
            f"{name:14} {row['seconds']:5.2f} s ({row['least']:.2f}-{row['most']:.2f})  {used}\n"
        )
    sys.stdout.write(
        f"a token {prices['token_ms']:.2f} ms, a page out and in {prices['page_ms']:.2f} ms\n"
    )


if __name__ == "__main__":
    main()
