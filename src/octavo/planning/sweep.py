"""Many settings on the same load: for each the highest rate that meets the target, and what a token costs then."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product

from octavo.planning.capacity import Capacity, Load, find_capacity
from octavo.planning.setups import MachineSetup
from octavo.planning.targets import Goal


@dataclass(frozen=True, slots=True)
class Grid:
    """Values to combine."""

    block_sizes: Sequence[int]
    max_num_batched_tokens: Sequence[int]
    max_num_seqs: Sequence[int]

    def setups(self, base: MachineSetup) -> Iterator[MachineSetup]:
        """`base` with each combination; budgets below the number of sequences are left out, as the engine refuses them."""
        for block_size, tokens, seqs in product(
            self.block_sizes, self.max_num_batched_tokens, self.max_num_seqs
        ):
            if tokens >= seqs:
                limits = replace(base.limits, max_num_batched_tokens=tokens, max_num_seqs=seqs)
                yield replace(base, block_size=block_size, limits=limits)


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One combination and what it can do."""

    setup: MachineSetup
    capacity: Capacity

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens at the highest rate."""
        figures = self.capacity.figures
        return 0.0 if figures is None else figures.output_tokens_per_s

    def cost_per_million_tokens(self, price_per_hour: float) -> float | None:
        """At the highest rate; None if no rate meets the target."""
        figures = self.capacity.figures
        return None if figures is None else figures.cost_per_million_tokens(price_per_hour)


def run_sweep(
    base: MachineSetup,
    grid: Grid,
    load: Load,
    goal: Goal,
    *,
    num_processes: int,
    progress: Callable[[float], None] = lambda _share: None,
) -> list[SweepRow]:
    """All combinations, the cheapest first; the order of equals is that of the grid."""
    setups = list(grid.setups(base))
    rows: dict[int, SweepRow] = {}
    with ProcessPoolExecutor(num_processes) as executor:
        jobs = {
            executor.submit(find_capacity, setup, load, goal): number
            for number, setup in enumerate(setups)
        }
        for job in as_completed(jobs):
            number = jobs[job]
            rows[number] = SweepRow(setups[number], job.result())
            progress(len(rows) / len(setups))
    in_order = [rows[number] for number in range(len(setups))]
    return sorted(in_order, key=lambda row: -row.tokens_per_s)
