"""Waiting for something that a signal to stop may overtake."""

import asyncio
from collections.abc import Awaitable


async def done_before(work: Awaitable[object], stop: asyncio.Event) -> bool:
    """Wait until `work` is done; False: `stop` was set first, and the work is cancelled. Raises what the work raises."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        return False
    working.result()
    return True
