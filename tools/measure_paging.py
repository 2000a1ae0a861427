"""Measure the pages of a workload with the real scheduler, and write the table and the picture of docs/paging.md.

The runner computes nothing: how many pages there are depends on lengths alone. With --check, only compare.
"""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.config import BLOCK_SIZES, SchedulerConfig, SchedulingPolicy
from octavo.core.block_tables import BlockTables
from octavo.core.request import Request
from octavo.core.sampling_params import SamplingParams
from octavo.core.scheduler import Scheduler
from octavo.core.step import StepPlan, StepResult
from octavo.core.usage import KvUsage
from octavo.evaluation.throughput import WorkItem, read_workload

ROOT = Path(__file__).resolve().parents[1]
WORKLOAD = ROOT / "bench" / "workloads" / "sharegpt64.jsonl"
PAGE = ROOT / "docs" / "paging.md"
PICTURE = ROOT / "docs" / "images" / "paging-waste.svg"
BEGIN, END = "<!-- measured: `make docs` -->\n", "<!-- measured: end -->\n"

CONTEXT = 2048
"""A page as long as the context is what reserving the longest sequence for every request comes to."""
NUM_SAMPLES = 4
SIZES = (*BLOCK_SIZES, CONTEXT)


@dataclass(frozen=True, slots=True)
class Measured:
    """How the pool was used in each step of a run."""

    usages: tuple[KvUsage, ...]

    @property
    def waste(self) -> float:
        """Share of the slots of referenced pages that hold no token, averaged over steps."""
        return _mean([1 - u.num_slots_used / u.num_slots_referenced for u in self.usages])

    @property
    def most_slots(self) -> int:
        """Slots of referenced pages, at the most."""
        return max(u.num_slots_referenced for u in self.usages)

    @property
    def shared(self) -> float:
        """Share of the pages that sharing saves, averaged over steps."""
        saved = [(u.num_blocks_saved_by_sharing, u.num_blocks_referenced) for u in self.usages]
        return _mean([s / (s + referenced) for s, referenced in saved])


def main() -> None:
    """Write page and picture; with --check say which of them is not current."""
    items = read_workload(WORKLOAD)
    runs = {size: run(items, size, 1) for size in SIZES}
    forked = {size: run(items, size, NUM_SAMPLES) for size in SIZES}
    before, rest = PAGE.read_text().split(BEGIN)
    page = before + BEGIN + table(runs, forked) + END + rest.split(END)[1]
    stale = []
    for path, text in ((PAGE, page), (PICTURE, picture(runs))):
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        sys.exit(f"not current, run `make docs`: {', '.join(stale)}")


def run(items: Sequence[WorkItem], block_size: int, num_samples: int) -> Measured:
    """All requests at once, in a pool that never runs out, each to its full length."""
    limits = SchedulerConfig()
    scheduler = Scheduler(
        # Twice what is needed: who is let in needs a spare page beside its own.
        BlockTables(2 * len(items) * num_samples * (CONTEXT // block_size), block_size),
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        max_model_len=CONTEXT,
        policy=SchedulingPolicy.FCFS,
        end_token_ids=frozenset(),
        prefix_caching=False,  # the answers are all the same token here
    )
    for item in items:
        params = SamplingParams(n=num_samples, max_tokens=item.max_tokens)
        scheduler.add(Request(item.id, array("i", item.prompt_token_ids), params, seed=0))
    usages: list[KvUsage] = []
    while scheduler.has_work:
        plan = scheduler.schedule()
        usages.append(scheduler.usage())
        scheduler.commit(plan, _any_tokens(plan))
    return Measured(tuple(usages))


def table(runs: dict[int, Measured], forked: dict[int, Measured]) -> str:
    """Markdown rows, one for each size of a page."""
    lines = [
        "| page | empty slots | slots held at the most | pages that 4 answers to each prompt share | copies on write |",
        "| --- | --- | --- | --- | --- |",
    ]
    for size in SIZES:
        name = f"{size:,}, the whole context" if size == CONTEXT else f"{size}"
        lines.append(
            f"| {name} | {runs[size].waste:.1%} | {runs[size].most_slots:,} | {forked[size].shared:.1%} | "
            f"{forked[size].usages[-1].num_block_copies} |"
        )
    return "\n" + "\n".join(lines) + "\n\n"


def picture(runs: dict[int, Measured]) -> str:
    """An SVG: the share of empty slots by page size, and the slots held over the run."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="860" height="330" viewBox="0 0 860 330" '
        'font-family="DejaVu Sans, Verdana, sans-serif" role="img" '
        'aria-label="Share of empty slots by page size, and slots held in each step.">',
        '<rect x="0.5" y="0.5" width="859" height="329" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
        _text(24, 30, "empty slots, by page size", bold=True),
        _text(450, 30, "slots held, step by step", bold=True),
        *_bars(runs),
        *_curves(runs),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _bars(runs: dict[int, Measured]) -> list[str]:
    parts = []
    for i, size in enumerate(SIZES):
        y, width = 62 + 46 * i, 250 * runs[size].waste
        colour = "#ffc9c9" if size == CONTEXT else "#a5d8ff"
        parts += [
            _text(84, y + 18, f"{size:,}", anchor="end"),
            f'<rect x="96" y="{y}" width="{width:.1f}" height="28" fill="{colour}" stroke="#8c959f"/>',
            _text(104 + width, y + 18, f"{runs[size].waste:.1%}"),
        ]
    return [*parts, _text(96, 308, "2,048 reserves the whole context", grey=True)]


def _curves(runs: dict[int, Measured]) -> list[str]:
    left, bottom, width, height = 450.0, 280.0, 320.0, 225.0
    most = runs[CONTEXT].most_slots
    parts: list[str] = []
    for name, size, colour in (
        ("whole context reserved", CONTEXT, "#ffc9c9"),
        ("pages of 128", 128, "#a5d8ff"),
        ("pages of 16", 16, "#2b8a3e"),
    ):
        values = [usage.num_slots_referenced for usage in runs[size].usages]
        steps = range(0, len(values), 4)
        points = " ".join(
            f"{left + width * i / len(values):.1f},{bottom - height * values[i] / most:.1f}"
            for i in steps
        )
        parts.append(
            f'<polygon points="{left},{bottom} {points} {left + width},{bottom}" fill="{colour}"/>'
        )
        y = 62 + 7 * len(parts)
        parts.append(f'<rect x="640" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(658, y, name))
    return [
        *parts,
        _text(
            left,
            308,
            f"at the most {most:,}, and {runs[16].most_slots:,} in pages of 16",
            grey=True,
        ),
    ]


def _any_tokens(plan: StepPlan) -> StepResult:
    return StepResult([0] * sum(seq.num_draws for seq in plan.seqs))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, grey: bool = False
) -> str:
    weight = "bold" if bold else "normal"
    colour = "#57606a" if grey else "#24292f"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{text}</text>'
    )


if __name__ == "__main__":
    main()
