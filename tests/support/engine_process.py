"""Engine processes for tests, ended whatever the test does."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from octavo.config import Backend, CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.core.sampling_params import SamplingParams
from octavo.engine.client import EngineClient
from octavo.engine.messages import SequenceOutput
from octavo.engine.process import start_engine_process
from support.fake_engine import MODULE
from support.text_model import text_model_folder

NUM_BLOCKS = 64


def engine_config(**scheduler: Any) -> EngineConfig:
    """The tiny text model on the reference backend, with a small pool."""
    return EngineConfig(
        model=ModelConfig(model=str(text_model_folder())),
        cache=CacheConfig(num_blocks=NUM_BLOCKS),
        scheduler=SchedulerConfig(**scheduler),
        backend=Backend.REFERENCE,
    )


@contextlib.asynccontextmanager
async def connected(
    config: EngineConfig | None = None, *, module: str = MODULE, **options: Any
) -> AsyncIterator[EngineClient]:
    """A connected client of a new engine process; `options` go to `EngineClient`."""
    process = start_engine_process(config or engine_config(), module=module)
    client = EngineClient(process, **options)
    await client.connect()
    try:
        yield client
    finally:
        await client.close()


async def generated(
    client: EngineClient, request_id: str, prompt: list[int], params: SamplingParams | None = None
) -> list[int]:
    """All tokens of the first sequence of a request."""
    token_ids: list[int] = []
    params = params or SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    async with client.generate(request_id, prompt, params) as stream:
        async for item in stream:
            if isinstance(item, SequenceOutput) and item.index == 0:
                token_ids += item.token_ids
    return token_ids


async def until(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come true"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but is not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
