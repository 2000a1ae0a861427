"""The tables of the PagedAttention paper (Kwon et al., SOSP 2023), simulated: OPT-13B on one A100-40GB.

Lengths are log-normal with the paper's means; its traces are not public. Everything that is assumed is in
`Assumptions`, one set for all rows.
"""

from dataclasses import dataclass, replace

from octavo.planning.beams import BeamModel, share_saved
from octavo.planning.capacity import MadeUpLoad, find_capacity
from octavo.planning.costs import Roofline
from octavo.planning.devices import GIB, device_named
from octavo.planning.figures import Figures, figures_of
from octavo.planning.model_numbers import published
from octavo.planning.setups import MachineSetup, Policy
from octavo.planning.workloads import (
    Lengths,
    Population,
    draw_lengths,
    population,
    requests_for,
)

MAX_LEN = 2048
KV_MEMORY_BYTES = 12 * GIB
"""Table 1 of the paper."""
SYSTEMS = (Policy.MAX, Policy.POW2, Policy.ORACLE, Policy.PAGED)
SATURATING = {"sharegpt": 10.0, "alpaca": 100.0}
"""Requests per second with which every system's queue never empties."""
BEAM_LENGTHS = {"alpaca": 400, "sharegpt": 150}
"""Requests whose beams are followed."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the paper does not say, the same for every row."""

    prompt_sigma: float = 1.1
    output_sigma: float = 0.9
    memory_efficiency: float = 0.8
    """Share of the 1,555 GB/s that steps reach."""
    compute_efficiency: float = 0.5
    """Share of the 312 TFLOP/s."""
    overhead_s: float = 0.005
    """Of a step."""
    latency_limit_s: float = 0.5
    """Normalized latency up to which a rate counts as sustained."""
    seconds: float = 3600.0
    """Length of a ShareGPT trace; Alpaca's have a quarter of it, and more requests all the same."""
    beam_switch: float = 0.1
    """Chance in a step that a beam follows another: set so that width 2 on Alpaca comes out, for all others a prediction."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One published value, or a range of them, and the simulated one."""

    figure: str
    what: str
    published: tuple[float, ...]
    simulated: float
    unit: str = ""

    @property
    def difference(self) -> float:
        """Simulated less published; less the nearest end of a range, 0 inside."""
        low, high = min(self.published), max(self.published)
        return self.simulated - min(max(self.simulated, low), high)


def setup(assumed: Assumptions, policy: Policy, block_size: int = 16) -> MachineSetup:
    """OPT-13B on an A100-40GB under a policy."""
    model, device = published("opt-13b"), device_named("a100-40gb")
    costs = Roofline(
        model,
        device.bytes_per_s * assumed.memory_efficiency,
        device.operations_per_s * assumed.compute_efficiency,
        assumed.overhead_s,
    )
    slots = KV_MEMORY_BYTES // model.token_bytes
    return MachineSetup(model, costs, slots, MAX_LEN, policy, block_size)


def people(assumed: Assumptions, kind: str, n: int = 1) -> Population:
    """The paper's data sets."""
    return replace(population(kind, assumed.prompt_sigma, assumed.output_sigma), n=n)


def trace_of(assumed: Assumptions, kind: str) -> Assumptions:
    """The same for the length of this data set's trace."""
    return replace(assumed, seconds=assumed.seconds / 4) if kind == "alpaca" else assumed


def under_load(
    assumed: Assumptions,
    policy: Policy,
    kind: str,
    rate: float,
    *,
    n: int = 1,
    block_size: int = 16,
) -> Figures:
    """A trace at this rate, up to its end; what is still open then is not waited for."""
    requests = requests_for(
        people(assumed, kind, n), rate, assumed.seconds, max_model_len=MAX_LEN, seed=assumed.seed
    )
    machine = setup(assumed, policy, block_size)
    return figures_of([machine.run(requests, until=assumed.seconds)])


def sustained(assumed: Assumptions, policy: Policy, crowd: Population) -> float:
    """The highest rate at which the mean normalized latency of a trace keeps to the limit."""
    load = MadeUpLoad(crowd, assumed.seconds, MAX_LEN, assumed.seed)
    return find_capacity(setup(assumed, policy), load, Sustains(assumed.latency_limit_s)).rate


@dataclass(frozen=True, slots=True)
class Sustains:
    """Whether a run keeps to a mean normalized latency."""

    limit_s: float

    def __call__(self, figures: Figures) -> bool:
        latency = figures.normalized_latency_s
        return latency is not None and latency.mean <= self.limit_s


def chatbot(assumed: Assumptions) -> Population:
    """Figure 17: prompts are the last 1,024 tokens of a conversation; every Orca reserves 1,024 for the answer."""
    return replace(people(assumed, "sharegpt"), prompts=Lengths(1024))


def beams_saved(assumed: Assumptions, kind: str, width: int) -> float:
    """Share of blocks that beams save."""
    crowd = people(assumed, kind)
    lengths = draw_lengths(crowd, BEAM_LENGTHS[kind], max_model_len=MAX_LEN, seed=assumed.seed)
    return share_saved(BeamModel(assumed.beam_switch), width, lengths, assumed.seed)
