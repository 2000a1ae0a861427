"""A running engine process over the fake runner."""

from collections.abc import AsyncIterator

import pytest

from octavo.engine.client import EngineClient
from support.engine_process import connected


@pytest.fixture
async def client() -> AsyncIterator[EngineClient]:
    """A client of a ready engine process whose runner obeys the prompts (support.fake_engine)."""
    async with connected() as client:
        await client.wait_ready()
        yield client
