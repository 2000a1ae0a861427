"""Which simulations the paper's tables need, as jobs for several processes; each is computed once."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.planning import paper
from octavo.planning.figures import Figures
from octavo.planning.paper import SYSTEMS, Assumptions
from octavo.planning.setups import Policy

KINDS = ("sharegpt", "alpaca")
BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
WIDTHS = (2, 4, 6)
PREFIXES = (80, 341)
"""Figure 16: one example, and five."""
CHAT_PROMPTS = (512, 768, 1024)
VARIED_S = 900.0
"""Length of traces that show how results move, at most."""
SATURATED_S = 900.0
"""Of those with a queue that never empties, at least: filling up at the start is to count for little."""
SLOW_OVERHEAD_S = 0.025
"""With this a step with 30 requests takes the 45 ms that the paper's figure 13a implies (Little's law). Runs that show
what it explains are rows of their own; no other row has it."""
BATCH_RATE = {"sharegpt": 2.0, "alpaca": 30.0}
BLOCK_RATE = {"sharegpt": 2.5, "alpaca": 25.0}
SHARING_RATE = {"sharegpt": 0.25, "alpaca": 2.0}
"""Low enough that nothing is preempted at six answers."""

VARIATIONS: Mapping[str, Mapping[str, Any]] = {
    "as assumed": {},
    "sigma 0.9 and 0.7": {"prompt_sigma": 0.9, "output_sigma": 0.7},
    "sigma 1.0 and 0.8": {"prompt_sigma": 1.0, "output_sigma": 0.8},
    "sigma 1.2 and 1.0": {"prompt_sigma": 1.2, "output_sigma": 1.0},
    "sigma 1.3 and 1.1": {"prompt_sigma": 1.3, "output_sigma": 1.1},
    "another seed": {"seed": 1},
    "overhead 15 ms": {"overhead_s": 0.015},
    "overhead 25 ms": {"overhead_s": 0.025},
    "memory efficiency 0.6": {"memory_efficiency": 0.6},
    "compute efficiency 0.3": {"compute_efficiency": 0.3},
}
"""Each changes only what it names."""

Key = tuple[Any, ...]
Job = tuple[Key, Callable[..., Any], tuple[Any, ...]]


@dataclass(slots=True)
class Runs:
    """Results by what was asked for."""

    assumed: Assumptions
    results: dict[Key, Any] = field(default_factory=dict)

    def compute(
        self, num_processes: int, progress: Callable[[float], None] = lambda _share: None
    ) -> None:
        """All runs that the tables need."""
        with ProcessPoolExecutor(num_processes) as executor:
            jobs: dict[Future[Any], Key] = {
                executor.submit(function, *arguments): key
                for key, function, arguments in self.wanted()
            }
            for done, job in enumerate(as_completed(jobs), 1):
                self.results[jobs[job]] = job.result()
                progress(done / len(jobs))

    def wanted(self) -> Iterator[Job]:
        """What has to be computed."""
        # The longest first, so that no process is left alone with one at the end.
        yield from self._rates()
        yield from self._variations()
        yield from self._at_fixed_rates()
        yield from self._sharing()

    def _rates(self) -> Iterator[Job]:
        """Figures 12, 14, 16 and 17."""
        yield from self._cases("rate", self.assumed)
        yield from self._cases("slow rate", replace(self.assumed, overhead_s=SLOW_OVERHEAD_S))
        for kind in KINDS:
            assumed = paper.trace_of(self.assumed, kind)
            for policy in (*SYSTEMS, Policy.STATIC):
                crowd = paper.people(assumed, kind)
                yield ("rate", kind, 1, policy), paper.sustained, (assumed, policy, crowd)
        for n in WIDTHS:
            crowd = paper.people(assumed, "alpaca", n)
            for policy in (Policy.PAGED, Policy.ORACLE):
                yield ("rate", "alpaca", n, policy), paper.sustained, (assumed, policy, crowd)

    def _cases(self, name: str, assumed: Assumptions) -> Iterator[Job]:
        """Figures 16 and 17."""
        for prefix_len in PREFIXES:
            for policy in (Policy.PAGED, Policy.ORACLE):
                key = (name, "translation", prefix_len, policy)
                yield key, paper.translating, (assumed, policy, prefix_len)
        for chat_prompt in CHAT_PROMPTS:
            chatting = replace(assumed, chat_prompt=chat_prompt)
            crowd = paper.chatbot(chatting)
            for policy in (Policy.PAGED, Policy.MAX):
                key = (name, "chatbot", chat_prompt, policy)
                yield key, paper.sustained, (chatting, policy, crowd)

    def _variations(self) -> Iterator[Job]:
        """With a full queue everything moves; what is shared moves with the lengths alone."""
        seconds = min(VARIED_S, self.assumed.seconds)
        for name, changes in VARIATIONS.items():
            assumed = replace(self.assumed, seconds=seconds, **changes)
            for policy in SYSTEMS:
                yield ("full", name, policy), saturated, (assumed, policy)
            crowd = paper.people(assumed, "sharegpt")
            for policy in (Policy.PAGED, Policy.ORACLE, Policy.MAX):
                yield ("varied rate", name, policy), paper.sustained, (assumed, policy, crowd)
            if changes.keys() <= {"prompt_sigma", "output_sigma", "seed"}:
                for kind in KINDS:
                    for width in WIDTHS:
                        key = ("varied", name, kind, width)
                        yield (*key, "samples"), samples_saved, (assumed, kind, width)
                        yield (*key, "beams"), paper.beams_saved, (assumed, kind, width)

    def _at_fixed_rates(self) -> Iterator[Job]:
        """Figures 13 and 18b."""
        for kind in KINDS:
            assumed = paper.trace_of(self.assumed, kind)
            for policy in SYSTEMS:
                yield (
                    ("load", kind, policy),
                    paper.under_load,
                    (assumed, policy, kind, BATCH_RATE[kind]),
                )
            for size in BLOCK_SIZES:
                yield ("block", kind, size), _block_size, (assumed, kind, size)
        slow = replace(self.assumed, overhead_s=SLOW_OVERHEAD_S)
        arguments = (slow, Policy.PAGED, "sharegpt", BATCH_RATE["sharegpt"])
        yield ("slow",), paper.under_load, arguments

    def _sharing(self) -> Iterator[Job]:
        """Figure 15."""
        for kind in KINDS:
            assumed = paper.trace_of(self.assumed, kind)
            for width in WIDTHS:
                yield ("beams", kind, width), paper.beams_saved, (assumed, kind, width)
                yield ("samples", kind, width), samples_saved, (assumed, kind, width)


def saturated(assumed: Assumptions, policy: Policy) -> Figures:
    """With a queue that never empties."""
    full = replace(assumed, seconds=max(SATURATED_S, assumed.seconds))
    return paper.under_load(full, policy, "sharegpt", paper.SATURATING["sharegpt"])


def samples_saved(assumed: Assumptions, kind: str, n: int) -> float:
    """Share of the blocks that answers to one prompt share."""
    return paper.under_load(assumed, Policy.PAGED, kind, SHARING_RATE[kind], n=n).memory_saved


def _block_size(assumed: Assumptions, kind: str, block_size: int) -> Figures:
    return paper.under_load(assumed, Policy.PAGED, kind, BLOCK_RATE[kind], block_size=block_size)
