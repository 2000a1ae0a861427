"""What single requests cost in pages, for those that ask."""

from dataclasses import dataclass

from octavo.core.scheduler import Scheduler


@dataclass(slots=True)
class KvAccount:
    """The pages that one request has held, each counted once however many of its sequences shared it."""

    peak_blocks: int = 0
    """Most at the end of a step's planning."""
    block_seconds: float = 0.0
    """Pages times the time of the steps for which they were held."""


class KvAccounts:
    """The accounts of all open requests that asked. Others cost nothing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._accounts: dict[str, KvAccount] = {}
        self._held: dict[str, int] = {}

    def open(self, request_id: str) -> None:
        """A request that asked is accepted."""
        self._accounts[request_id] = KvAccount()

    def begin_step(self) -> None:
        """A step is planned: what it needs is held until it ends."""
        self._held = {name: self._scheduler.num_blocks_of(name) for name in self._accounts}
        for name, num_blocks in self._held.items():
            account = self._accounts[name]
            account.peak_blocks = max(account.peak_blocks, num_blocks)

    def end_step(self, seconds: float) -> None:
        """The step took this long. Comes before its events are reported."""
        for name, num_blocks in self._held.items():
            self._accounts[name].block_seconds += num_blocks * seconds

    def close(self, request_id: str) -> KvAccount | None:
        """A request has ended; its account, if it asked for one."""
        self._held.pop(request_id, None)
        return self._accounts.pop(request_id, None)
