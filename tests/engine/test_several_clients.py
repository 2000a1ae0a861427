"""One engine, several clients: each hears what is its own, and one that has gone is replaced."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.engine.channel import ClientEnd
from octavo.engine.endpoint import Endpoint
from octavo.engine.messages import (
    Abort,
    ClientGone,
    EngineStats,
    FromEngine,
    Loading,
    PromptComputed,
    PromptLogprobs,
    RequestEnd,
    SequenceOutput,
    StepOutputs,
    Submit,
    ToEngine,
)
from octavo.engine.several_clients import STATS_INTERVAL_S, SeveralClients

BUSY = EngineStats(num_running=1)


@dataclass
class Parties:
    """Both sides."""

    engine: SeveralClients
    clients: list[ClientEnd]
    endpoint: Endpoint

    def submit(self, index: int, request_id: str) -> None:
        """A client sends a request, and the engine takes it."""
        message = Submit(request_id, b"", SamplingParams(), 0)
        self.clients[index].send(self.clients[index].encode(message))
        assert self.taken() == [message]

    def taken(self) -> list[ToEngine]:
        return self.engine.receive(wait=True)

    def heard(self, index: int, is_enough: Callable[[list[FromEngine]], bool]) -> list[FromEngine]:
        """What comes to a client until that is enough."""
        messages: list[FromEngine] = []
        deadline = time.monotonic() + 5
        while not is_enough(messages):
            assert time.monotonic() < deadline, messages
            messages += self.clients[index].receive()
        return messages


@pytest.fixture
def parties() -> Iterator[Parties]:
    endpoint = Endpoint.create()
    clients = [ClientEnd(endpoint, i) for i in range(3)]
    engine = SeveralClients(endpoint, 3)
    engine.send(Loading("here", 0.0))
    made = Parties(engine, clients, endpoint)
    for i in range(3):
        made.heard(i, bool)
    yield made
    engine.close()
    for client in made.clients:
        client.close()
    endpoint.remove()


def outputs(*request_ids: str, ends: bool = False) -> StepOutputs:
    return StepOutputs(
        [SequenceOutput(name, 0, [len(name)]) for name in request_ids],
        [RequestEnd(name, 1) for name in request_ids if ends],
        [PromptLogprobs(name, []) for name in request_ids],
        BUSY,
        [PromptComputed(name, 2) for name in request_ids],
    )


def test_each_hears_its_own(parties: Parties) -> None:
    parties.submit(0, "a")
    parties.submit(2, "ccc")
    parties.engine.send(outputs("a", "ccc"))
    for index, name in ((0, "a"), (2, "ccc")):
        (message,) = parties.heard(index, bool)
        assert message == outputs(name)
    (message,) = parties.heard(1, bool)
    assert message == outputs()  # only how the engine is


def test_who_has_nothing_open_hears_little(parties: Parties) -> None:
    parties.submit(0, "a")
    start = time.monotonic()
    for _ in range(200):
        parties.engine.send(outputs("a"))
    idle = StepOutputs([], [RequestEnd("a", 1)], [], EngineStats(num_steps=201), [])
    parties.engine.send(idle)
    assert len(parties.heard(0, lambda m: len(m) == 201)) == 201
    heard = parties.heard(1, lambda m: bool(m) and m[-1] == StepOutputs([], [], [], idle.stats, []))
    assert len(heard) <= 2 + (time.monotonic() - start) / STATS_INTERVAL_S


def test_a_client_that_has_gone_is_replaced(parties: Parties) -> None:
    for index, name in ((1, "a"), (1, "b"), (2, "c")):
        parties.submit(index, name)
    parties.engine.send(outputs("a", ends=True))
    parties.clients[1].close()
    gone = ClientGone(1)
    parties.clients[0].send(parties.clients[0].encode(gone))
    assert parties.taken() == [Abort(["b"])]
    parties.engine.send(StepOutputs([], [RequestEnd("b", 1)], [], BUSY, []))
    parties.clients[1] = ClientEnd(parties.endpoint, 1)
    heard = parties.heard(1, lambda messages: len(messages) == 2)
    assert heard[0] == Loading("here", 0.0)  # what it has missed
    parties.submit(1, "d")
    parties.engine.send(outputs("c", "d"))
    assert outputs("d") in parties.heard(1, bool)
    assert outputs("c") in parties.heard(2, lambda messages: outputs("c") in messages)
