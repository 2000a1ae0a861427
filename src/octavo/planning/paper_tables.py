"""The paper's published values, and the rows that the simulations come to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from octavo.planning import paper
from octavo.planning.figures import Figures
from octavo.planning.paper import SYSTEMS, PaperRow
from octavo.planning.paper_notes import Note
from octavo.planning.paper_runs import (
    BATCH_RATE,
    BLOCK_SIZES,
    CHAT_PROMPTS,
    KINDS,
    PREFIXES,
    SLOW_OVERHEAD_S,
    VARIATIONS,
    WIDTHS,
    Runs,
)
from octavo.planning.setups import Policy

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
RATE_RATIOS = {
    Policy.ORACLE: (1.7, 2.7),
    Policy.POW2: (1.7, 8.0),
    Policy.MAX: (2.7, 8.0),
    Policy.STATIC: (1.0, 22.0),
}
"""Of Pow2 the paper says only that it lies between the two others."""
SAVED_PARALLEL: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "alpaca": {2: (0.0609,), 4: (0.0853,), 6: (0.0979,)},
    "sharegpt": {2: (0.162,), 4: (0.162, 0.305), 6: (0.305,)},
}
SAVED_BEAMS: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "alpaca": {2: (0.3756,), 4: (0.5313,), 6: (0.5516,)},
    "sharegpt": {2: (0.443,), 4: (0.443, 0.663), 6: (0.663,)},
}
TRANSLATION_RATIO = {80: 1.67, 341: 3.58}
SLOWER = f", overhead {1000 * SLOW_OVERHEAD_S:g} ms"
RECOMPUTE_BY_SWAP = (0.0, 1.2)
"""Recomputing never took more than a fifth longer than swapping."""
MISSING = (
    "Figure 14, beams: their memory is simulated (figure 15), their throughput is not.",
    "Figure 18a (a kernel's latency) is no matter of scheduling.",
    "Figure 19b (swapping end to end): single swaps are compared (figure 19a).",
)
"""What is not reproduced, and why."""


def rows_of(runs: Runs) -> list[PaperRow]:
    """All rows of the paper that can be compared."""
    return [*_memory(runs), *_batches(runs), *_rates(runs), *_sharing(runs), *_swapping(runs)]


def _memory(runs: Runs) -> Iterator[PaperRow]:
    for policy in SYSTEMS:
        figures: Figures = runs.results["full", "as assumed", policy]
        what = f"{NAMES[policy]}: memory that holds tokens"
        yield PaperRow("2", what, (HELD[policy],), figures.memory.tokens, "%")


def _batches(runs: Runs) -> Iterator[PaperRow]:
    full = {p: runs.results["full", "as assumed", p].mean_batch for p in SYSTEMS}
    for policy in SYSTEMS:
        what = f"{NAMES[policy]}: requests in a step, queue never empty"
        yield PaperRow("13a", what, (BATCH["sharegpt"][policy],), full[policy])
    for other, ratio in ((Policy.ORACLE, 2.2), (Policy.MAX, 4.3)):
        what = f"paged / {NAMES[other]}, queue never empty"
        yield PaperRow("13a", what, (ratio,), full[Policy.PAGED] / full[other], "x")
    for kind, figure in (("sharegpt", "13a"), ("alpaca", "13b")):
        for policy in SYSTEMS:
            batch = runs.results["load", kind, policy].mean_batch
            what = f"{NAMES[policy]}: requests in a step, {kind} at {BATCH_RATE[kind]:g}/s"
            yield PaperRow(figure, what, (BATCH[kind][policy],), batch, note=Note.SPEED)
    what = f"paged: requests in a step, sharegpt at 2/s{SLOWER}"
    slow: Figures = runs.results["slow",]
    yield PaperRow("13a", what, (BATCH["sharegpt"][Policy.PAGED],), slow.mean_batch)


def _rates(runs: Runs) -> Iterator[PaperRow]:
    for policy, published in RATE_RATIOS.items():
        what = f"paged / {NAMES[policy]}: rate sustained, sharegpt"
        yield PaperRow("12", what, published, _ratio(runs, "rate", "sharegpt", 1, policy), "x")
    for n in WIDTHS:
        what = f"paged / Orca (Oracle): rate sustained, alpaca, {n} samples"
        found = _ratio(runs, "rate", "alpaca", n, Policy.ORACLE)
        yield PaperRow("14", what, (1.3, 2.3), found, "x")
    for name, besides in (("rate", ""), ("slow rate", SLOWER)):
        for prefix_len in PREFIXES:
            what = f"paged / Orca (Oracle): rate sustained, {prefix_len} tokens in common{besides}"
            found = _ratio(runs, name, "translation", prefix_len, Policy.ORACLE)
            ratio = TRANSLATION_RATIO[prefix_len]
            yield PaperRow("16", what, (ratio,), found, "x", Note.EXAMPLES)
    for name, besides in (("rate", ""), ("slow rate", SLOWER)):
        for chat_prompt in CHAT_PROMPTS:
            what = f"paged / Orca: rate sustained, chatbot, prompts of {chat_prompt}{besides}"
            found = _ratio(runs, name, "chatbot", chat_prompt, Policy.MAX)
            yield PaperRow("17", what, (2.0,), found, "x", Note.CHATBOT)


def _ratio(runs: Runs, name: str, kind: str, what: int, other: Policy) -> float:
    """How many times the rate that another system sustains."""
    paged, less = (runs.results[name, kind, what, policy] for policy in (Policy.PAGED, other))
    return float(paged / less)


def _sharing(runs: Runs) -> Iterator[PaperRow]:
    for kind in ("alpaca", "sharegpt"):
        published: dict[tuple[str, str, Note], Mapping[int, tuple[float, ...]]] = {
            ("samples", "parallel samples", Note.SAMPLES): SAVED_PARALLEL[kind],
            ("beams", "beams", Note.BEAMS): SAVED_BEAMS[kind],
        }
        for (table, name, note), values in published.items():
            for width in WIDTHS:
                what = f"blocks saved by sharing, {kind}, {width} {name}"
                found = runs.results[table, kind, width]
                yield PaperRow("15", what, values[width], found, "%", note)


def _swapping(runs: Runs) -> Iterator[PaperRow]:
    for size in BLOCK_SIZES:
        what = f"computing again / swapping, blocks of {size}"
        found = paper.recompute_by_swap(runs.assumed, size)
        yield PaperRow("19", what, RECOMPUTE_BY_SWAP, found, "x", Note.SWAPPING)
    slow = replace(runs.assumed, link_bytes_per_s=runs.assumed.link_bytes_per_s / 2)
    what = f"computing again / swapping, blocks of {size}, over half the bandwidth"
    found = paper.recompute_by_swap(slow, size)
    yield PaperRow("19", what, RECOMPUTE_BY_SWAP, found, "x", Note.SWAPPING)


def block_sizes(runs: Runs) -> dict[str, dict[int, Figures]]:
    """Figure 18b: runs by data set and block size, at 0.8 of the rate that blocks of 16 sustain."""
    return {
        kind: {size: runs.results["block", kind, size] for size in BLOCK_SIZES} for kind in KINDS
    }


@dataclass(frozen=True, slots=True)
class Variation:
    """What the results are under other assumptions."""

    held: Mapping[Policy, float]
    """Share of the memory that holds tokens, queue never empty."""
    batch: Mapping[Policy, float]
    """Requests in a step, queue never empty."""
    rates: Mapping[Policy, float]
    """What the paged system sustains of ShareGPT, over what another does."""
    saved: Mapping[tuple[str, str, int], float]
    """By data set, samples or beams, and width: empty where it cannot move."""


def variations(runs: Runs) -> dict[str, Variation]:
    """By name."""
    return {name: _variation(runs, name) for name in VARIATIONS}


def _variation(runs: Runs, name: str) -> Variation:
    results = runs.results
    full: dict[Policy, Figures] = {p: results["full", name, p] for p in SYSTEMS}
    rates: dict[Policy, float] = {
        p: results["varied rate", name, Policy.PAGED] / results["varied rate", name, p]
        for p in (Policy.ORACLE, Policy.MAX)
    }
    return Variation(
        {p: figures.memory.tokens for p, figures in full.items()},
        {p: figures.mean_batch for p, figures in full.items()},
        rates,
        {
            (kind, what, width): results["varied", name, kind, width, what]
            for kind in KINDS
            for what in ("samples", "beams")
            for width in WIDTHS
            if ("varied", name, kind, width, what) in results
        },
    )
