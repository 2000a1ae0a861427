"""A machine to simulate, as a value: it can be sent to another process and built there as often as wanted."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from octavo.config import SchedulerConfig
from octavo.core.costs import RestoreCosts
from octavo.planning.batching import Batcher
from octavo.planning.contiguous import ContiguousBatcher, Reservation
from octavo.planning.costs import CostModel
from octavo.planning.model_numbers import ModelNumbers
from octavo.planning.paged import PagedBatcher
from octavo.planning.recorder import Recorder
from octavo.planning.requests import SimRequest
from octavo.planning.simulator import SimulatedMachine
from octavo.planning.static import StaticBatcher
from octavo.planning.swapping import SwapDisk, recompute_seconds


class Policy(Enum):
    """Who manages the memory, and how."""

    PAGED = "paged"
    """Octavo: the real scheduler over the real pages."""
    MAX = "max"
    POW2 = "pow2"
    ORACLE = "oracle"
    """The reservations of `contiguous`."""
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class MachineSetup:
    """Everything that a simulated machine depends on."""

    model: ModelNumbers
    costs: CostModel
    num_slots: int
    """Tokens whose keys and values the memory holds."""
    max_model_len: int
    policy: Policy = Policy.PAGED
    block_size: int = 16
    limits: SchedulerConfig = field(default_factory=SchedulerConfig)
    prefix_caching: bool = False
    """Of the paged policy alone."""
    swap: SwapDisk | None = None
    """Likewise. None: preempted sequences are computed again."""

    @property
    def page_bytes(self) -> int:
        """Of keys and values, over all layers."""
        return self.block_size * self.model.token_bytes

    def batcher(self) -> Batcher:
        """A new one, with all memory free."""
        span = self.model.span
        if self.policy is Policy.PAGED:
            return PagedBatcher(
                span,
                num_blocks=self.num_slots // self.block_size,
                block_size=self.block_size,
                max_model_len=self.max_model_len,
                limits=self.limits,
                prefix_caching=self.prefix_caching,
                costs=self._restore_costs(),
                num_swap_slots=0 if self.swap is None else self.swap.num_bytes // self.page_bytes,
            )
        if self.policy is Policy.STATIC:
            return StaticBatcher(span, num_slots=self.num_slots, max_model_len=self.max_model_len)
        return ContiguousBatcher(
            span,
            Reservation(self.policy.value),
            num_slots=self.num_slots,
            max_model_len=self.max_model_len,
            max_num_seqs=self.limits.max_num_seqs,
        )

    def run(
        self, requests: Iterable[SimRequest], *, until: float = math.inf, fast_forward: bool = True
    ) -> Recorder:
        """What a new machine makes of these requests, to the end of the last or to a time."""
        machine = self.machine(fast_forward=fast_forward)
        for request in requests:
            machine.offer(request)
        return machine.run(until)

    def machine(self, *, fast_forward: bool = True) -> SimulatedMachine:
        """A new machine at time 0, with nothing to do."""
        return SimulatedMachine(
            self.batcher(),
            self.costs,
            Recorder(),
            fast_forward=fast_forward,
            page_s=self._page_s(),
        )

    def _page_s(self) -> float:
        return 0.0 if self.swap is None else self.page_bytes / self.swap.bytes_per_s

    def _restore_costs(self) -> RestoreCosts | None:
        """What the engine would measure: a token among as many as a step takes, and a page."""
        if self.swap is None:
            return None
        num_tokens = min(self.limits.max_num_batched_tokens, self.max_model_len)
        token_s = recompute_seconds(self.model, num_tokens, self.costs) / num_tokens
        return RestoreCosts(token_s, self._page_s(), self._page_s())
