"""Responses that were made, for those that go on from them: the newest, in the memory of one process."""

from collections import OrderedDict
from typing import Protocol

import msgspec

MAX_STORED_RESPONSES = 4096
"""Responses that are kept."""
MAX_STORED_BYTES = 64 * 2**20
"""Bytes that they may take together, as JSON."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A response and what it was an answer to, as JSON."""

    body: bytes
    """The response, as it was sent."""
    messages: bytes
    """The conversation up to and with the answer, without instructions, as chat messages."""
    items: bytes
    """The input of the request that it answered."""

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        return len(self.body) + len(self.messages) + len(self.items)


class Responses(Protocol):
    """Where responses are kept. Each tenant sees its own only."""

    async def put(self, tenant: str, response_id: str, response: StoredResponse) -> None:
        """Keep a response; the oldest go where it has no room."""
        ...

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """A response, if it is kept."""
        ...

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a response. False: it was not kept."""
        ...


class ResponseStore:
    """Implements `Responses`, bounded in their number and in their bytes."""

    def __init__(
        self, max_responses: int = MAX_STORED_RESPONSES, max_bytes: int = MAX_STORED_BYTES
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._responses: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()

    def __len__(self) -> int:
        return len(self._responses)

    async def put(self, tenant: str, response_id: str, response: StoredResponse) -> None:
        """See `Responses`. One that is larger than all the room there is goes at once."""
        self._drop((tenant, response_id))
        self._responses[tenant, response_id] = response
        self._num_bytes += response.num_bytes
        while len(self._responses) > self._max_responses or self._num_bytes > self._max_bytes:
            self._drop(next(iter(self._responses)))

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """See `Responses`."""
        return self._responses.get((tenant, response_id))

    async def delete(self, tenant: str, response_id: str) -> bool:
        """See `Responses`."""
        return self._drop((tenant, response_id))

    def _drop(self, key: tuple[str, str]) -> bool:
        dropped = self._responses.pop(key, None)
        if dropped is not None:
            self._num_bytes -= dropped.num_bytes
        return dropped is not None
