"""A client and a real engine process over the fake runner: requests, aborts, refusals, memory."""

import asyncio
import dataclasses
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest

from octavo.core.request import splitmix64
from octavo.core.sampling_params import SamplingParams
from octavo.engine.channel import EngineEnd
from octavo.engine.client import EngineClient
from octavo.engine.endpoint import Endpoint
from octavo.engine.messages import EngineFailed, PromptLogprobs, RequestEnd, SequenceOutput
from octavo.errors import (
    ConfigError,
    ContextLengthError,
    EngineDeadError,
    InvalidParameterError,
    OctavoError,
    PromptError,
    QueueFullError,
    RequestFailedError,
)
from support.engine_process import NUM_BLOCKS, connected, engine_config, generated, until
from support.fake_engine import Order
from support.fake_runner import draw
from support.text_model import MAX_LEN, VOCAB_SIZE


@pytest.fixture
async def client() -> AsyncIterator[EngineClient]:
    """A client of a ready engine process whose runner obeys the prompts (support.fake_engine)."""
    async with connected() as client:
        await client.wait_ready()
        yield client


GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


def expected(prompt: list[int], seed: int, num_tokens: int) -> list[int]:
    """What the fake runner answers."""
    history = array("i", prompt)
    for index in range(num_tokens):
        history.append(draw(history, seed, index, ()))
    return history[len(prompt) :].tolist()


def is_idle(client: EngineClient) -> bool:
    stats = client.stats
    return (
        stats.num_running == stats.num_waiting == stats.num_blocks_referenced == 0
        and stats.num_blocks_free + stats.num_blocks_cached == NUM_BLOCKS
    )


async def test_ready_says_what_the_engine_is(client: EngineClient) -> None:
    ready = await client.wait_ready()
    assert client.state == "ready"
    assert client.loading is not None
    assert (ready.vocab_size, ready.max_model_len, ready.num_blocks) == (
        VOCAB_SIZE,
        MAX_LEN,
        NUM_BLOCKS,
    )
    assert {line.name for line in ready.ledger} >= {"weights", "scratch", "kv cache"}


async def test_a_request_streams_its_tokens_and_its_end(client: EngineClient) -> None:
    params = dataclasses.replace(GREEDY, seed=5)
    items = []
    async with client.generate("a", [1, 2, 3], params) as stream:
        async for item in stream:
            items.append(item)
    outputs = [item for item in items if isinstance(item, SequenceOutput)]
    assert [t for output in outputs for t in output.token_ids] == expected([1, 2, 3], 5, 8)
    assert [output.finish_reason for output in outputs] == [None] * (len(outputs) - 1) + ["length"]
    assert items[-1] == RequestEnd("a", 3)
    assert is_idle(client)


async def test_many_at_once_each_get_their_own(client: EngineClient) -> None:
    prompts = {f"r{i}": [1 + i % 30, 2, i % 7] for i in range(64)}
    params = dataclasses.replace(GREEDY, seed=9, max_tokens=12)
    results = await asyncio.gather(
        *(generated(client, name, prompt, params) for name, prompt in prompts.items())
    )
    assert results == [expected(prompt, 9, 12) for prompt in prompts.values()]
    assert client.stats.num_generation_tokens == 64 * 12


async def test_parallel_samples_each_end_once(client: EngineClient) -> None:
    params = SamplingParams(n=4, seed=7, max_tokens=9, ignore_eos=True)
    tokens: dict[int, list[int]] = {}
    reasons: list[tuple[int, str]] = []
    async with client.generate("a", [4, 5], params) as stream:
        async for item in stream:
            if isinstance(item, SequenceOutput):
                tokens.setdefault(item.index, []).extend(item.token_ids)
                if item.finish_reason:
                    reasons.append((item.index, item.finish_reason))
    assert sorted(reasons) == [(index, "length") for index in range(4)]
    seeds = [7, *(splitmix64(7 + index) for index in range(1, 4))]
    assert tokens == {i: expected([4, 5], seed, 9) for i, seed in enumerate(seeds)}


async def test_prompt_logprobs_come_first(client: EngineClient) -> None:
    params = dataclasses.replace(GREEDY, prompt_logprobs=1, logprobs=1)
    async with client.generate("a", [1, 2, 3], params) as stream:
        items = [item async for item in stream]
    assert isinstance(items[0], PromptLogprobs)
    assert [value.token_id for value in items[0].values] == [2, 3]
    assert all(item.logprobs for item in items[1:-1] if isinstance(item, SequenceOutput))


@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([], {}, PromptError),
        ([1, VOCAB_SIZE], {}, PromptError),
        ([2**40], {}, PromptError),
        (["a"], {}, PromptError),
        ([1] * MAX_LEN, {}, ContextLengthError),
        ([1], {"logprobs": 21}, InvalidParameterError),
        ([1], {"max_tokens": 2**70}, InvalidParameterError),
        ([1], {"stop": "\ud800"}, InvalidParameterError),
    ],
)
async def test_a_refused_request_raises_its_error_and_leaves_nothing(
    client: EngineClient, prompt: list[int], params: dict[str, Any], error: type[OctavoError]
) -> None:
    with pytest.raises(error):
        async with client.generate("bad", prompt, SamplingParams(**params)) as stream:
            async for _ in stream:
                pass
    assert await generated(client, "probe", [1, 2]) != []
    assert is_idle(client)


async def test_the_errors_name_their_parameter(client: EngineClient) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        client.generate("a", [1], SamplingParams(logprobs=21))
    assert (caught.value.parameter, caught.value.value) == ("logprobs", 21)


async def test_errors_of_the_engine_name_their_parameter_too(client: EngineClient) -> None:
    with pytest.raises(InvalidParameterError, match="max-num-seqs") as caught:
        await generated(client, "a", [1], SamplingParams(n=10_000))
    assert caught.value.parameter == "n"


async def test_a_request_id_in_use_is_refused_and_the_first_goes_on(client: EngineClient) -> None:
    async with client.generate("a", [1], GREEDY) as stream:
        with pytest.raises(InvalidParameterError, match="request_id"):
            async with client.generate("a", [1], GREEDY):
                pass
        assert isinstance([item async for item in stream][-1], RequestEnd)


async def test_leaving_aborts(client: EngineClient) -> None:
    params = dataclasses.replace(GREEDY, max_tokens=400)
    async with client.generate("a", [Order.DAWDLE], params) as stream:
        async for _ in stream:
            break
        assert client.stats.num_running == 1
    await until(lambda: is_idle(client))
    assert client.stats.num_generation_tokens < 400


async def test_a_sequence_is_aborted_and_the_others_go_on(client: EngineClient) -> None:
    params = SamplingParams(n=3, seed=7, max_tokens=200, ignore_eos=True)
    tokens = dict.fromkeys(range(3), 0)
    reasons: dict[int, str] = {}
    end = None
    async with client.generate("a", [Order.DAWDLE, 1], params) as stream:
        async for item in stream:
            if isinstance(item, SequenceOutput):
                tokens[item.index] += len(item.token_ids)
                if item.finish_reason:
                    assert item.index not in reasons
                    reasons[item.index] = item.finish_reason
                elif item.index == 1:
                    stream.abort_sequence(1)
                    stream.abort_sequence(1)  # once more: nothing
            elif isinstance(item, RequestEnd):
                end = item
    assert reasons == {0: "length", 1: "abort", 2: "length"}
    assert (tokens[0], tokens[2]) == (200, 200)
    assert tokens[1] < 100
    assert end == RequestEnd("a", 2)
    assert client.stats.num_generation_tokens < 500
    assert is_idle(client)


async def test_200_vanishing_clients_leave_nothing(client: EngineClient) -> None:
    params = dataclasses.replace(GREEDY, max_tokens=300)

    async def read(i: int) -> None:
        async with client.generate(f"r{i}", [Order.DAWDLE, i % 40, 3], params) as stream:
            async for _ in stream:
                pass

    tasks = [asyncio.create_task(read(i)) for i in range(200)]
    await until(lambda: client.stats.num_running > 0 and client.stats.num_waiting > 0)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    await until(lambda: is_idle(client))
    assert await generated(client, "probe", [1, 2]) != []


async def test_the_queue_limit() -> None:
    async with connected(engine_config(max_num_seqs=1, max_num_queued_reqs=1)) as client:
        params = dataclasses.replace(GREEDY, max_tokens=400)
        async with client.generate("running", [Order.DAWDLE], params) as stream:
            await anext(stream)
            async with client.generate("waiting", [1], params):
                with pytest.raises(QueueFullError, match="--max-num-queued-reqs"):
                    await generated(client, "refused", [1])
        await until(lambda: is_idle(client))


async def test_a_slow_reader_gets_everything_in_few_objects(client: EngineClient) -> None:
    params = dataclasses.replace(GREEDY, max_tokens=300, seed=3, logprobs=1)
    async with client.generate("slow", [1], params) as stream:
        await until(lambda: stream.has_ended)
        items = [item async for item in stream]
    (output, end) = items
    assert isinstance(output, SequenceOutput)
    assert isinstance(end, RequestEnd)
    assert output.token_ids == expected([1], 3, 300)
    assert [value.token_id for value in output.logprobs or []] == output.token_ids
    assert output.finish_reason == "length"


async def test_requests_without_a_seed_differ_unless_the_client_has_one() -> None:
    params = SamplingParams(max_tokens=16, ignore_eos=True)

    async def two(seed: int | None) -> list[list[int]]:
        async with connected(seed=seed) as client:
            return [await generated(client, name, [1], params) for name in "ab"]

    first, again, drawn = await asyncio.gather(two(11), two(11), two(None))
    assert first == again
    assert first[0] != first[1]
    assert drawn[0] != drawn[1]
    assert drawn != first


async def test_requests_wait_while_the_engine_loads() -> None:
    async with connected() as client:
        assert client.state == "loading"
        assert len(await generated(client, "early", [1])) == 8


async def test_a_model_that_cannot_load_is_reported() -> None:
    config = engine_config()
    missing = dataclasses.replace(config.model, model="/nowhere/model.gguf")
    async with connected(dataclasses.replace(config, model=missing)) as client:
        with pytest.raises(OctavoError, match=r"/nowhere/model\.gguf"):
            await client.wait_ready()
        with pytest.raises(OctavoError):
            await generated(client, "a", [1])
        assert client.state == "dead"
        assert await client.drain(1.0) is False


async def test_a_module_that_does_not_start_is_reported() -> None:
    async with connected(module="support.no_such_module") as client:
        with pytest.raises(EngineDeadError, match="exited with 1"):
            await client.wait_ready()


def test_every_error_of_the_tree_survives_the_way() -> None:
    from octavo.engine.named_errors import error_named  # the function under test

    assert isinstance(error_named("ContextLengthError", "m"), ContextLengthError)
    assert isinstance(error_named("QueueFullError", "m"), QueueFullError)
    assert isinstance(error_named(None, "m"), RequestFailedError)
    assert isinstance(error_named("SomethingElse", "m"), RequestFailedError)


class LateWords:
    """An engine process that has ended, and whose last message is still on its way."""

    pid = 0
    client_index = 0
    is_own = False

    def __init__(self, code: int) -> None:
        self.endpoint = Endpoint.create()
        self._code = code

    def wait(self) -> int:
        return self._code

    def stop(self) -> None: ...

    def connected(self) -> None: ...

    def kill(self) -> None: ...


@pytest.mark.parametrize(("code", "reason"), [(1, "no room for the pages"), (-9, "SIGKILL")])
async def test_a_reason_that_arrives_late_is_not_lost(code: int, reason: str) -> None:
    """On a busy machine the end of a process is known before what it said has been read."""
    process = LateWords(code)
    client = EngineClient(process)
    await client.connect()
    engine = EngineEnd(process.endpoint)
    asyncio.get_running_loop().call_later(
        1.0, engine.send, EngineFailed("ConfigError", "no room for the pages")
    )
    error = ConfigError if code > 0 else EngineDeadError
    with pytest.raises(error, match=reason):
        await client.wait_ready()
    await client.close()
    engine.close(linger_ms=0)
    process.endpoint.remove()


async def test_an_engine_may_end_after_a_client_that_does_not_own_it() -> None:
    """Its end is heard of while nothing listens any more."""
    process = LateWords(1)
    client = EngineClient(process)
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    await client.connect()
    await client.close()
    client.client_gone(1)
    client.unpin("system", "")
    await client.wait_dead()
    assert faults == []
    process.endpoint.remove()
