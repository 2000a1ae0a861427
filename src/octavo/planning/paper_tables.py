"""Which runs the paper's tables need, and the rows that they come to. The runs go to several processes."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.planning import paper
from octavo.planning.figures import Figures
from octavo.planning.paper import SYSTEMS, Assumptions, PaperRow
from octavo.planning.setups import Policy

BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
WIDTHS = (2, 4, 6)
NAMES = {
    Policy.MAX: "Orca (Max)",
    Policy.POW2: "Orca (Pow2)",
    Policy.ORACLE: "Orca (Oracle)",
    Policy.PAGED: "paged",
    Policy.STATIC: "FasterTransformer",
}
HELD = {Policy.MAX: 0.204, Policy.POW2: 0.268, Policy.ORACLE: 0.382, Policy.PAGED: 0.963}
BATCH = {
    "sharegpt": {Policy.MAX: 7.00, Policy.POW2: 9.81, Policy.ORACLE: 13.62, Policy.PAGED: 30.42},
    "alpaca": {Policy.MAX: 7.00, Policy.POW2: 43.24, Policy.ORACLE: 72.75, Policy.PAGED: 132.44},
}
SATURATED_S = 900.0
SLOW_OVERHEAD_S = 0.025
"""With this a step with 30 requests takes the 45 ms that the paper's figure 13a implies (Little's law)."""
BATCH_RATE = {"sharegpt": 2.0, "alpaca": 30.0}
SAVED_PARALLEL: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "alpaca": {2: (0.0609,), 4: (0.0853,), 6: (0.0979,)},
    "sharegpt": {2: (0.162,), 4: (0.162, 0.305), 6: (0.305,)},
}
SAVED_BEAMS: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "alpaca": {2: (0.3756,), 4: (0.5313,), 6: (0.5516,)},
    "sharegpt": {2: (0.443,), 4: (0.443, 0.663), 6: (0.663,)},
}
SHARING_RATE = {"sharegpt": 0.25, "alpaca": 2.0}
"""Low enough that nothing is preempted at six answers."""
MISSING = (
    "Figure 16 (a shared prefix of 80 and 341 tokens) needs the cache of prefixes, which simulations leave off.",
    "Figure 19 (swapping against computing again) needs swapping in the core.",
    "Figure 14, beams: their memory is simulated (figure 15), their throughput is not.",
    "Figure 18a (a kernel's latency) is no matter of scheduling.",
)
"""What is not reproduced, and why."""

VARIATIONS: Mapping[str, Mapping[str, float]] = {
    "as assumed": {},
    "sigma 0.9 and 0.7": {"prompt_sigma": 0.9, "output_sigma": 0.7},
    "sigma 1.3 and 1.1": {"prompt_sigma": 1.3, "output_sigma": 1.1},
    "overhead 15 ms": {"overhead_s": 0.015},
    "overhead 25 ms": {"overhead_s": 0.025},
    "memory efficiency 0.6": {"memory_efficiency": 0.6},
    "compute efficiency 0.3": {"compute_efficiency": 0.3},
    "another seed": {"seed": 1},
}

Key = tuple[Any, ...]


@dataclass(slots=True)
class Runs:
    """Results by what was asked for; each is computed once."""

    assumed: Assumptions
    results: dict[Key, Any] = field(default_factory=dict)

    def compute(
        self, num_processes: int, progress: Callable[[float], None] = lambda _share: None
    ) -> None:
        """All runs that the tables need."""
        with ProcessPoolExecutor(num_processes) as executor:
            jobs: dict[Future[Any], Key] = {}
            for key, (function, *arguments) in self._wanted().items():
                jobs[executor.submit(function, *arguments)] = key
            for done, job in enumerate(as_completed(jobs), 1):
                self.results[jobs[job]] = job.result()
                progress(done / len(jobs))

    def _wanted(self) -> dict[Key, tuple[Any, ...]]:
        wanted: dict[Key, tuple[Any, ...]] = {}
        for kind in ("sharegpt", "alpaca"):
            assumed = paper.trace_of(self.assumed, kind)
            crowd = paper.people(assumed, kind)
            for policy in (*SYSTEMS, Policy.STATIC):
                wanted["rate", kind, policy] = (paper.sustained, assumed, policy, crowd)
            for policy in SYSTEMS:
                rate = BATCH_RATE[kind]
                wanted["load", kind, policy] = (paper.under_load, assumed, policy, kind, rate)
            for width in WIDTHS:
                wanted["beams", kind, width] = (paper.beams_saved, assumed, kind, width)
                wanted["samples", kind, width] = (_samples, assumed, kind, width)
            for size in BLOCK_SIZES:
                wanted["block", kind, size] = (_block_size, assumed, kind, size)
        assumed, short = self.assumed, paper.trace_of(self.assumed, "alpaca")
        for n in WIDTHS:
            crowd = paper.people(assumed, "alpaca", n)
            for policy in (Policy.ORACLE, Policy.PAGED):
                wanted["rate", n, policy] = (paper.sustained, short, policy, crowd)
        slow = replace(assumed, overhead_s=SLOW_OVERHEAD_S)
        wanted["slow",] = (paper.under_load, slow, Policy.PAGED, "sharegpt", BATCH_RATE["sharegpt"])
        for policy in (Policy.MAX, Policy.PAGED):
            crowd = paper.chatbot(assumed)
            wanted["rate", "chatbot", policy] = (paper.sustained, assumed, policy, crowd)
        for name, policy in [(name, policy) for name in VARIATIONS for policy in SYSTEMS]:
            wanted["full", name, policy] = (saturated, varied(assumed, name), policy)
        return wanted

    def rows(self) -> list[PaperRow]:
        """All rows of the paper that can be compared."""
        return [*self._memory(), *self._batches(), *self._rates(), *self._sharing()]

    def _memory(self) -> list[PaperRow]:
        rows = []
        for policy in SYSTEMS:
            figures: Figures = self.results["full", "as assumed", policy]
            rows.append(
                PaperRow(
                    "2",
                    f"{NAMES[policy]}: memory that holds tokens",
                    (HELD[policy],),
                    figures.memory.tokens,
                    "%",
                )
            )
        return rows

    def _batches(self) -> list[PaperRow]:
        rows = []
        full = {p: self.results["full", "as assumed", p].mean_batch for p in SYSTEMS}
        for policy in SYSTEMS:
            rows.append(
                PaperRow("13a", f"{NAMES[policy]}: requests in a step, queue never empty",
                         (BATCH["sharegpt"][policy],), full[policy])
            )  # fmt: skip
        for other, ratio in ((Policy.ORACLE, 2.2), (Policy.MAX, 4.3)):
            rows.append(
                PaperRow("13a", f"paged / {NAMES[other]}, queue never empty", (ratio,),
                         full[Policy.PAGED] / full[other], "x")
            )  # fmt: skip
        for kind, figure in (("sharegpt", "13a"), ("alpaca", "13b")):
            for policy in SYSTEMS:
                batch = self.results["load", kind, policy].mean_batch
                what = f"{NAMES[policy]}: requests in a step, {kind} at {BATCH_RATE[kind]:g}/s"
                rows.append(PaperRow(figure, what, (BATCH[kind][policy],), batch))
        what = f"paged, sharegpt at 2/s, if a step took {1000 * SLOW_OVERHEAD_S:g} ms besides"
        slow: Figures = self.results["slow",]
        return [*rows, PaperRow("13a", what, (30.42,), slow.mean_batch)]

    def _rates(self) -> list[PaperRow]:
        rows = []
        published = {Policy.ORACLE: (1.7, 2.7), Policy.MAX: (2.7, 8.0), Policy.STATIC: (1.0, 22.0)}
        for policy, span in published.items():
            rates = [self.results["rate", "sharegpt", p] for p in (Policy.PAGED, policy)]
            what = f"paged / {NAMES[policy]}: rate sustained, sharegpt"
            rows.append(PaperRow("12", what, span, rates[0] / rates[1], "x"))
        for n, (low, high) in {2: (1.3, 2.3), 4: (1.3, 2.3), 6: (1.3, 2.3)}.items():
            rates = [self.results["rate", n, p] for p in (Policy.PAGED, Policy.ORACLE)]
            what = f"paged / Orca (Oracle): rate sustained, alpaca, {n} samples"
            rows.append(PaperRow("14", what, (low, high), rates[0] / rates[1], "x"))
        rates = [self.results["rate", "chatbot", p] for p in (Policy.PAGED, Policy.MAX)]
        what = "paged / Orca: rate sustained, chatbot"
        return [*rows, PaperRow("17", what, (2.0,), rates[0] / rates[1], "x")]

    def _sharing(self) -> list[PaperRow]:
        rows = []
        for kind in ("alpaca", "sharegpt"):
            published: dict[tuple[str, str], Mapping[int, tuple[float, ...]]] = {
                ("samples", "parallel samples"): SAVED_PARALLEL[kind],
                ("beams", "beams"): SAVED_BEAMS[kind],
            }
            for (table, name), values in published.items():
                for width in WIDTHS:
                    what = f"blocks saved by sharing, {kind}, {width} {name}"
                    found = self.results[table, kind, width]
                    rows.append(PaperRow("15", what, values[width], found, "%"))
        return rows

    def block_sizes(self) -> dict[str, dict[int, Figures]]:
        """Figure 18b: runs by data set and block size, at 0.8 of the rate that blocks of 16 sustain."""
        return {
            kind: {size: self.results["block", kind, size] for size in BLOCK_SIZES}
            for kind in ("sharegpt", "alpaca")
        }

    def variations(self) -> dict[str, dict[Policy, Figures]]:
        """Runs with a full queue under each variation of the assumptions."""
        return {
            name: {policy: self.results["full", name, policy] for policy in SYSTEMS}
            for name in VARIATIONS
        }


def varied(assumed: Assumptions, name: str) -> Assumptions:
    """The assumptions with one of VARIATIONS."""
    return replace(assumed, **VARIATIONS[name])  # type: ignore[arg-type]


def saturated(assumed: Assumptions, policy: Policy) -> Figures:
    """With a queue that never empties; as long whatever the traces, so that filling up at the start counts for little."""
    full = replace(assumed, seconds=SATURATED_S)
    return paper.under_load(full, policy, "sharegpt", paper.SATURATING["sharegpt"])


def _samples(assumed: Assumptions, kind: str, n: int) -> float:
    return paper.under_load(assumed, Policy.PAGED, kind, SHARING_RATE[kind], n=n).memory_saved


def _block_size(assumed: Assumptions, kind: str, block_size: int) -> Figures:
    rate = {"sharegpt": 2.5, "alpaca": 25.0}[kind]
    return paper.under_load(assumed, Policy.PAGED, kind, rate, block_size=block_size)
