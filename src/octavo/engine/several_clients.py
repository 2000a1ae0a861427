"""Several front ends over one engine: each hears of its own requests, and of how the engine is."""

import time

import zmq

from octavo.engine.channel import EngineEnd
from octavo.engine.endpoint import Endpoint
from octavo.engine.messages import (
    Abort,
    ClientGone,
    EngineStats,
    FromEngine,
    Loading,
    Ready,
    StepOutputs,
    Submit,
    ToEngine,
)

STATS_INTERVAL_S = 0.1
"""How often a client hears how the engine is while nothing happens for it."""


class SeveralClients:
    """The engine's end of all its clients. Requests belong to the client that has submitted them."""

    def __init__(self, endpoint: Endpoint, num_clients: int) -> None:
        self._endpoint = endpoint
        self._ends = [EngineEnd(endpoint, index) for index in range(num_clients)]
        self._owners: dict[str, int] = {}
        self._state: Loading | Ready | None = None
        """What a client that comes later has missed."""
        self._told = [0.0] * num_clients

    def send(self, message: FromEngine) -> None:
        """Tell each client what concerns it; waits while one of those lags too far behind."""
        if isinstance(message, StepOutputs):
            self._send_outputs(message)
            return
        if isinstance(message, (Loading, Ready)):
            self._state = message
        for end in self._ends:
            end.send(message)

    def _send_outputs(self, outputs: StepOutputs) -> None:
        parts = self._divided(outputs)
        now = time.monotonic()
        is_idle = not (outputs.stats.num_running or outputs.stats.num_waiting)
        for index, end in enumerate(self._ends):
            part = parts.get(index)
            if part is not None:
                end.send(part)
            elif is_idle or now - self._told[index] >= STATS_INTERVAL_S:
                end.offer(_nothing(outputs.stats))
            else:
                continue
            self._told[index] = now

    def _divided(self, outputs: StepOutputs) -> dict[int, StepOutputs]:
        """The outputs of each client that has any."""
        parts: dict[int, StepOutputs] = {}
        owners, stats = self._owners, outputs.stats

        def part_of(request_id: str) -> StepOutputs:
            index = owners[request_id]
            if index not in parts:
                parts[index] = _nothing(stats)
            return parts[index]

        for prompt in outputs.prompts:
            part_of(prompt.request_id).prompts.append(prompt)
        for values in outputs.prompt_logprobs:
            part_of(values.request_id).prompt_logprobs.append(values)
        for output in outputs.sequences:
            part_of(output.request_id).sequences.append(output)
        for end in outputs.ends:
            part_of(end.request_id).ends.append(end)
        for end in outputs.ends:
            del owners[end.request_id]
        return parts

    def receive(self, *, wait: bool) -> list[ToEngine]:
        """All messages that have come; with `wait` at least one (a blocked thread, no polling)."""
        messages: list[ToEngine] = []
        while True:
            for index, end in enumerate(self._ends):
                messages += self._taken(index, end.receive(wait=False))
            if messages or not wait:
                return messages
            zmq.select([end.socket for end in self._ends], [], [])

    def _taken(self, index: int, messages: list[ToEngine]) -> list[ToEngine]:
        taken: list[ToEngine] = []
        for message in messages:
            if isinstance(message, Submit):
                self._owners[message.request_id] = index
            elif isinstance(message, ClientGone):
                taken.append(Abort(self._replace(message.index)))
                continue
            taken.append(message)
        return taken

    def _replace(self, index: int) -> list[str]:
        """Forget what was for a client that has gone, and wait for another. Returns its requests."""
        self._ends[index].close(linger_ms=0)
        self._ends[index] = EngineEnd(self._endpoint, index)
        if self._state is not None:
            self._ends[index].send(self._state)
        return [request_id for request_id, owner in self._owners.items() if owner == index]

    def close(self) -> None:
        """Hand over what is queued, then close."""
        for end in self._ends:
            end.close()


def _nothing(stats: EngineStats) -> StepOutputs:
    return StepOutputs([], [], [], stats, [])
