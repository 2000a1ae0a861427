"""One store of responses for several front ends, over its socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from octavo.errors import EngineDeadError
from octavo.server.frontends.shared_responses import SharedResponses, serving_responses
from octavo.server.openai.responses.store import ResponseStore, StoredResponse


def stored(num_bytes: int) -> StoredResponse:
    return StoredResponse(b"{" + bytes(num_bytes), b"[1]", b"[2]")


@contextlib.asynccontextmanager
async def shared(folder: Path, store: ResponseStore) -> AsyncIterator[list[SharedResponses]]:
    """Two front ends' sides of a store."""
    clients = [SharedResponses(folder) for _ in range(2)]
    async with serving_responses(folder, store):
        yield clients
        for client in clients:
            await client.close()


async def test_what_one_keeps_the_other_has(tmp_path: Path) -> None:
    async with shared(tmp_path, ResponseStore()) as (one, other):
        assert await other.get("t", "r") is None
        await one.put("t", "r", stored(3_000_000))
        assert await other.get("t", "r") == stored(3_000_000)
        assert await other.get("u", "r") is None
        assert not await one.delete("u", "r")
        assert await other.delete("t", "r")
        assert await one.get("t", "r") is None


async def test_they_share_one_bound(tmp_path: Path) -> None:
    store = ResponseStore(max_responses=4)
    async with shared(tmp_path, store) as clients:
        await asyncio.gather(
            *(clients[i % 2].put("t", f"r{i}", stored(i)) for i in range(40)),
        )
        kept = [i for i in range(40) if await clients[i % 2].get("t", f"r{i}") == stored(i)]
        assert len(kept) == len(store) == 4


async def test_one_who_goes_away_in_the_middle_disturbs_nobody(tmp_path: Path) -> None:
    """Its answer is not taken for that of the next question."""
    async with shared(tmp_path, ResponseStore()) as (one, _):
        for i in range(20):
            await one.put("t", f"r{i}", stored(i))
        for i in range(20):
            asking = asyncio.ensure_future(one.get("t", "r0"))
            for _ in range(i % 5):
                await asyncio.sleep(0)
            asking.cancel()
            assert await one.get("t", f"r{i}") == stored(i)


async def test_the_end_of_the_supervisor_ends_the_wait(tmp_path: Path) -> None:
    client = SharedResponses(tmp_path)
    async with serving_responses(tmp_path, ResponseStore()):
        await client.put("t", "r", stored(1))
    with pytest.raises(EngineDeadError, match="the process that keeps responses has ended"):
        await client.get("t", "r")


async def test_without_a_supervisor_it_is_an_error_with_a_name(tmp_path: Path) -> None:
    with pytest.raises(EngineDeadError, match="the process that keeps responses has ended"):
        await SharedResponses(tmp_path).get("t", "r")
