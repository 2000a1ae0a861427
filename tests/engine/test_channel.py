"""The socket, the shared page, and the small values on the way."""

import threading
import time
from array import array
from pathlib import Path

import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.engine.channel import ClientEnd, EngineEnd
from octavo.engine.endpoint import MAX_DIRECTORY_LEN, Endpoint
from octavo.engine.messages import (
    Abort,
    Drain,
    EngineStats,
    FromEngine,
    Loading,
    RequestEnd,
    SequenceOutput,
    StepOutputs,
    Submit,
    ToEngine,
    TokenLogprob,
)
from octavo.engine.prompts import check_token_ids, token_id_array
from octavo.engine.pulse import Heart, Pulse, create_pulse_file
from octavo.engine.seeds import SeedSource
from octavo.errors import EngineDeadError, PromptError


def collect(client: ClientEnd, answers: list[FromEngine], count: int) -> None:
    deadline = time.monotonic() + 5
    while len(answers) < count:
        assert time.monotonic() < deadline
        answers += client.receive()


def test_messages_of_both_directions_arrive_as_they_were_sent() -> None:
    endpoint = Endpoint.create()
    client = ClientEnd(endpoint)
    with pytest.raises(EngineDeadError):  # no engine is connected
        client.send(b"")
    engine = EngineEnd(endpoint)
    engine.send(Loading("early", 0.5))
    params = SamplingParams(
        n=2, seed=-5, stop=("x",), logit_bias={7: -1.5}, bad_words_token_ids=((1, 2),)
    )
    to_engine: list[ToEngine] = [
        Submit("a", array("i", [1, -2, 3]).tobytes(), params, 2**64 - 1, priority=-3),
        Abort(["a", "b"]),
        Drain(1.5),
    ]
    logprob = TokenLogprob(5, -0.25, 1, [(5, -0.25), (9, -3.0)])
    outputs = StepOutputs(
        [SequenceOutput("a", 1, [5], [logprob], "stop", 5)],
        [RequestEnd("a", 3)],
        [],
        EngineStats(num_steps=4),
    )
    answers: list[FromEngine] = []
    collect(client, answers, 1)
    for message in to_engine:
        client.send(client.encode(message))
    received: list[ToEngine] = []
    while len(received) < 3:
        received += engine.receive(wait=True)
    assert received == to_engine
    assert engine.receive(wait=False) == []
    engine.send(outputs)
    collect(client, answers, 2)
    assert answers == [Loading("early", 0.5), outputs]
    closer = threading.Thread(target=engine.close)
    closer.start()
    client.close()
    closer.join()
    endpoint.remove()
    endpoint.remove()
    assert not endpoint.directory.exists()


def test_a_long_temporary_folder_does_not_break_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * MAX_DIRECTORY_LEN)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    endpoint = Endpoint.create()
    assert len(str(endpoint.directory)) <= MAX_DIRECTORY_LEN
    assert list(long.iterdir()) == []
    endpoint.remove()


def test_the_pulse_shows_life_and_the_length_of_a_step(tmp_path: Path) -> None:
    create_pulse_file(tmp_path / "pulse")
    engine, reader = Pulse(tmp_path / "pulse"), Pulse(tmp_path / "pulse")
    assert reader.read().since_beat_s > 60  # never
    beats: list[None] = []
    heart = Heart(engine, lambda: beats.append(None))
    heart.start()
    while not beats:
        time.sleep(0.001)
    assert reader.read().since_beat_s < 5
    assert reader.read().step_s is None
    engine.enter_step()
    time.sleep(0.02)
    step = reader.read().step_s
    assert step is not None and 0.02 <= step < 5
    engine.leave_step()
    assert reader.read().step_s is None
    heart.stop()
    assert not heart.is_alive()
    engine.close()
    reader.close()


def test_token_ids_are_made_flat() -> None:
    ids = array("i", [1, 2])
    assert token_id_array(ids) is ids
    assert token_id_array([1, 2]) == ids
    assert token_id_array(array("q", [1, 2])) == ids
    for bad in ([2**31], [1.0], ["1"], [None]):
        with pytest.raises(PromptError, match=f"given: {bad[0]!r}"):
            token_id_array(bad)  # type: ignore[arg-type]


def test_token_ids_are_checked_against_the_vocabulary() -> None:
    check_token_ids(array("i"), 10)
    check_token_ids(array("i", [0, 9]), 10)
    for bad in (10, -1):
        with pytest.raises(PromptError, match=f"from 0 to 9; given: {bad}") as caught:
            check_token_ids(array("i", [5, bad, 5]), 10)
        assert (caught.value.parameter, caught.value.value) == ("prompt", bad)


def test_seeds() -> None:
    def first(base: int | None, count: int = 50) -> list[int]:
        source = SeedSource(base)
        return [source.next(None) for _ in range(count)]

    assert first(1) == first(1)
    seeds = [*first(0), *first(1), *first(2), *first(None)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert first(None) != first(None)
    assert SeedSource(None).next(7) == 7
    assert SeedSource(0).next(-1) == 2**64 - 1


def test_the_engine_may_speak_before_anyone_listens() -> None:
    endpoint = Endpoint.create()
    engine = EngineEnd(endpoint)
    engine.send(Loading("early", 0.5))
    client = ClientEnd(endpoint)
    answers: list[FromEngine] = []
    collect(client, answers, 1)
    assert answers == [Loading("early", 0.5)]
    engine.close()
    client.close()
    endpoint.remove()


def test_a_closed_end_is_silent() -> None:
    """A timer or a reader that comes late finds it so."""
    endpoint = Endpoint.create()
    client = ClientEnd(endpoint)
    frame = client.encode(Drain(0.0))
    client.close()
    assert client.receive() == []
    with pytest.raises(EngineDeadError, match="closed"):
        client.send(frame)
    endpoint.remove()
