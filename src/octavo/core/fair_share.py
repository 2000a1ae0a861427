"""Who is called next, of the requests that have not been let in yet.

Each tenant has a counter of the tokens that it was served, and the request of the tenant with the smallest counter is
called; of one tenant, and of tenants that are level, the oldest. (Virtual token counters: Sheng et al., "Fairness in
Serving Large Language Models", OSDI 2024.) So with one tenant this is first come, first served, and with several that
always want more none gets more than any other, however many requests it sends. Where nobody waits all begin again. A
better priority goes before all that.

Who has been called keeps its turn: the rank that decides about admission and preemption does not change any more.
"""

from dataclasses import dataclass, field

from octavo.core.request import Request
from octavo.core.sequence import RankedSequences, Sequence

OUTPUT_WEIGHT = 2
"""What a generated token counts against one of a prompt; as in the paper."""
MOST_IDLE_TENANTS = 1024
"""Beyond it, what tenants were served who want nothing now is forgotten."""


@dataclass(slots=True)
class _Tenant:
    settled: float = 0.0
    """What it was served in requests that have ended, and what it let pass while it wanted nothing."""
    waiting: RankedSequences = field(default_factory=RankedSequences)
    """First sequences of its requests that have not been called."""
    called: dict[str, Request] = field(default_factory=dict)
    """Its requests that have been called and are open."""

    @property
    def served(self) -> float:
        """The counter."""
        return self.settled + sum(map(_service, self.called.values()))


class FairShare:
    """The requests that have not been called, and what each tenant was served."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._requests: dict[str, Request] = {}
        self._floor = 0.0
        """Where the counter of a tenant begins that wanted nothing: nobody saves up what it has not used."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def sequences(self) -> list[Sequence]:
        """The first sequences of the requests in here; for checks."""
        return [request.sequences[0] for request in self._requests.values()]

    def add(self, request: Request) -> None:
        """A request is accepted and waits."""
        if not self._requests and len(self._tenants) > 1:
            self._level()
        tenant = self._tenants.get(request.tenant)
        if tenant is None:
            if len(self._tenants) >= MOST_IDLE_TENANTS:
                self._forget_idle()
            tenant = self._tenants[request.tenant] = _Tenant()
        if not tenant.waiting and len(self._tenants) > 1:
            tenant.settled += max(0.0, self._raised_floor() - tenant.served)
        tenant.waiting.add(request.sequences[0])
        self._requests[request.request_id] = request

    def remove(self, sequence: Sequence) -> None:
        """A request ends that has not been called."""
        request = self._requests.pop(sequence.request_id)
        self._tenants[request.tenant].waiting.remove(sequence)

    def call(self, better_than: int | None = None) -> Request | None:
        """Take out the request whose turn it is; None if there is none of a class better than that priority."""
        if not self._requests:
            return None
        waiting = [tenant for tenant in self._tenants.values() if tenant.waiting]
        if better_than is not None:
            waiting = [t for t in waiting if t.waiting[0].rank.priority < better_than]
        if not waiting:
            return None
        tenant = min(waiting, key=_turn) if len(waiting) > 1 else waiting[0]
        first = tenant.waiting[0]
        tenant.waiting.remove(first)
        request = self._requests.pop(first.request_id)
        tenant.called[first.request_id] = request
        return request

    def close(self, request: Request) -> None:
        """A request has ended, called or not: what it was served is known."""
        tenant = self._tenants.get(request.tenant)
        if tenant is not None and tenant.called.pop(request.request_id, None) is not None:
            tenant.settled += _service(request)

    def _raised_floor(self) -> float:
        counters = (tenant.served for tenant in self._tenants.values() if tenant.waiting)
        self._floor = max(self._floor, min(counters, default=0.0))
        return self._floor

    def _level(self) -> None:
        """Nobody waits, so nobody has had less than was wanted: all begin again."""
        self._forget_idle()
        self._floor = 0.0
        for tenant in self._tenants.values():
            tenant.settled -= tenant.served

    def _forget_idle(self) -> None:
        self._tenants = {
            name: tenant
            for name, tenant in self._tenants.items()
            if tenant.waiting or tenant.called
        }


def _turn(tenant: _Tenant) -> tuple[int, float, int]:
    rank = tenant.waiting[0].rank
    return rank.priority, tenant.served, rank.turn


def _service(request: Request) -> int:
    """What a request that was called counts: its prompt at once, but not what was in the cache; its tokens as they come."""
    num_outputs = sum(sequence.num_outputs for sequence in request.sequences)
    return request.prompt_len - (request.num_cached_tokens or 0) + OUTPUT_WEIGHT * num_outputs
