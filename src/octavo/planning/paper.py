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
from octavo.planning.paper_notes import Note
from octavo.planning.setups import MachineSetup, Policy
from octavo.planning.swapping import Link, recompute_seconds, swap_seconds
from octavo.planning.targets import Goal, Target
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
BEAM_LENGTHS = {"alpaca": 2000, "sharegpt": 300}
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
    beam_switch: float = 8.0
    """See `beams`: set so that width 2 on Alpaca comes out, for all others a prediction."""
    chat_prompt: int = 1024
    """Tokens of each prompt of the chatbot; the paper says where histories are cut, and that most are."""
    translated_prompt: float = 30.0
    translated_answer: float = 35.0
    """Mean tokens of a sentence and its translation: four more examples make the paper's prefix 261 tokens longer."""
    preempted_tokens: int = 500
    """Of a sequence that is swapped or computed again: a whole request of ShareGPT."""
    link_bytes_per_s: float = 24e9
    """Of PCIe 4.0, between the device and host memory."""
    copy_s: float = 10e-6
    """Of each single copy over it, besides."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One published value, or a range of them, and the simulated one."""

    figure: str
    what: str
    published: tuple[float, ...]
    simulated: float
    unit: str = ""
    note: Note | None = None
    """Why it differs, where it does."""

    @property
    def difference(self) -> float:
        """Simulated less published; less the nearest end of a range, 0 inside."""
        low, high = min(self.published), max(self.published)
        return self.simulated - min(max(self.simulated, low), high)


def setup(
    assumed: Assumptions, policy: Policy, block_size: int = 16, model_name: str = "opt-13b"
) -> MachineSetup:
    """A model on an A100-40GB under a policy."""
    model, device = published(model_name), device_named("a100-40gb")
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
    return _sustained(assumed, setup(assumed, policy), crowd, assumed.seconds)


def translating(assumed: Assumptions, policy: Policy, prefix_len: int) -> float:
    """Figure 16: likewise for sentences to translate with LLaMA-13B, after examples that are the same for all.

    Pages keep the examples; nobody else can. Traces are an eighth as long, and have more requests all the same.
    """
    machine, crowd = translation_setup(assumed, policy), translators(assumed, prefix_len)
    return _sustained(assumed, machine, crowd, assumed.seconds / 8)


def translation_setup(assumed: Assumptions, policy: Policy) -> MachineSetup:
    """LLaMA-13B; pages keep beginnings."""
    machine = setup(assumed, policy, model_name="llama-13b")
    return replace(machine, prefix_caching=policy is Policy.PAGED)


def translators(assumed: Assumptions, prefix_len: int) -> Population:
    """Whose prompts all begin with the same examples."""
    return Population(
        Lengths(assumed.translated_prompt, assumed.prompt_sigma),
        Lengths(assumed.translated_answer, assumed.output_sigma),
        prefix_len=prefix_len,
    )


def _sustained(
    assumed: Assumptions, machine: MachineSetup, crowd: Population, seconds: float
) -> float:
    load = MadeUpLoad(crowd, seconds, MAX_LEN, assumed.seed)
    goal = Goal((Target("normalized", "mean", assumed.latency_limit_s),))
    return find_capacity(machine, load, goal).rate


def chatbot(assumed: Assumptions) -> Population:
    """Figure 17: prompts are the end of a conversation; every Orca reserves 1,024 for the answer."""
    return replace(people(assumed, "sharegpt"), prompts=Lengths(assumed.chat_prompt))


def beams_saved(assumed: Assumptions, kind: str, width: int) -> float:
    """Share of blocks that beams save."""
    crowd = people(assumed, kind)
    lengths = draw_lengths(crowd, BEAM_LENGTHS[kind], max_model_len=MAX_LEN, seed=assumed.seed)
    return share_saved(BeamModel(assumed.beam_switch), width, lengths, assumed.seed)


def recompute_by_swap(assumed: Assumptions, block_size: int) -> float:
    """Figure 19: how long it takes to compute a sequence again, for each second of swapping it."""
    machine = setup(assumed, Policy.PAGED)
    link = Link(assumed.link_bytes_per_s, assumed.copy_s)
    num_tokens = assumed.preempted_tokens
    recompute = recompute_seconds(machine.model, num_tokens, machine.costs)
    return recompute / swap_seconds(machine.model, num_tokens, block_size, link)
