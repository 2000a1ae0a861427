"""Notice that a client has gone, while something is being made for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

Result = TypeVar("Result")


class Client:
    """The other end of a connection."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.has_gone = False

    async def wait_gone(self) -> None:
        """Return when the client has gone. The body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.has_gone = True


async def run_while_connected(
    work: Callable[[Client], Coroutine[Any, Any, Result]], receive: Receive
) -> Result:
    """Run `work` to its end, or cancel it when the client goes away and raise ClientDisconnect.

    `work` has ended in either case when this returns.
    """
    client = Client(receive)
    working = asyncio.ensure_future(work(client))
    watching = asyncio.ensure_future(client.wait_gone())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
