"""Ten times as many requests as can be served: some are served in time, the others are told so at once."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from support.answers import COMPLETIONS, script
from support.scripted_engine import MODULE as SCRIPTED
from support.server_process import RunningServer, running_server, tiny_config

SLOTS, QUEUE = 2, 4
BODY = {"prompt": script("\x04" + "twenty slow steps..."), "max_tokens": 40}
TIMES_TOO_MANY = 10
REFUSED_WITHIN_S = 0.5
MOST_GROWTH = 24 << 20


@dataclass(frozen=True)
class Sent:
    """One request, and what became of it."""

    status: int
    seconds: float
    retry_after: str | None


async def send(http: httpx.AsyncClient) -> Sent:
    start = time.perf_counter()
    response = await http.post(COMPLETIONS, json=BODY)
    seconds = time.perf_counter() - start
    return Sent(response.status_code, seconds, response.headers.get("retry-after"))


async def sustainable_rate(http: httpx.AsyncClient, count: int = 12) -> float:
    """Requests a second when as many are on their way as have a seat."""

    async def client() -> None:
        for _ in range(count // SLOTS):
            assert (await send(http)).status == 200

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(SLOTS)))
    return count / (time.perf_counter() - start)


async def send_at(http: httpx.AsyncClient, rate: float, seconds: float) -> list[Sent]:
    """So many requests a second, whatever becomes of those before."""
    start, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(send(http)))
    return await asyncio.gather(*tasks)


def memory_of(server: RunningServer) -> int:
    """Bytes of both processes now."""
    total = 0
    for pid in (server.process.pid, server.engine_pid()):
        status = Path(f"/proc/{pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        total += int(line.split()[1]) * 1024
    return total


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def overload(server: RunningServer, seconds: float) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:
        rate = await sustainable_rate(http)
        alone = (await send(http)).seconds
        await send_at(http, TIMES_TOO_MANY * rate, 1.0)  # connections and buffers are there now
        before = memory_of(server)
        sent = await send_at(http, TIMES_TOO_MANY * rate, seconds)
        await asyncio.sleep(1.0)
        assert memory_of(server) - before < MOST_GROWTH
        after = [(await send(http)) for _ in range(3)]
    assert {one.status for one in sent} == {200, 429}
    served = [one.seconds for one in sent if one.status == 200]
    refused = [one for one in sent if one.status == 429]
    assert len(served) > 0.6 * rate * seconds  # what can be served is
    assert len(refused) > len(sent) / 2
    # Whoever is let in has at most the queue before it, and those who have a seat.
    target = alone + (QUEUE + SLOTS) / rate
    assert percentile(served, 0.95) < 1.5 * target, (served, target)
    assert percentile([one.seconds for one in refused], 0.95) < REFUSED_WITHIN_S
    assert all(1 <= int(one.retry_after or 0) <= 60 for one in refused)
    assert all(one.status == 200 for one in after)
    assert min(one.seconds for one in after) < 2 * alone


def run_overload(model: Path, seconds: float) -> None:
    config = tiny_config(model, max_num_seqs=SLOTS, max_num_queued_reqs=QUEUE)
    with running_server(config, engine_module=SCRIPTED) as server:
        asyncio.run(overload(server, seconds))
        values = server.metrics()
        assert values["octavo_requests_refused_total"] > 0
        server.wait_idle()


def test_overload(merged_model: Path) -> None:
    run_overload(merged_model, 6.0)


@pytest.mark.long
def test_overload_for_a_minute(merged_model: Path) -> None:
    run_overload(merged_model, 60.0)
