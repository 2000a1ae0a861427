"""Responses that were made, for those that go on from them: the newest, in the memory of this process."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from octavo.server.http_errors import HttpError

MAX_STORED_RESPONSES = 4096
"""Responses that are kept."""
MAX_STORED_BYTES = 64 * 2**20
"""Bytes that they may take together, as JSON."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response and what it was an answer to."""

    body: bytes
    """The response, as it was sent."""
    messages: tuple[dict[str, Any], ...]
    """The conversation up to and with the answer, without instructions, as chat messages."""
    items: tuple[dict[str, Any], ...]
    """The input of the request that it answered."""
    num_bytes: int
    """About what it takes."""


class ResponseStore:
    """Drops the oldest where a new one has no room. Each tenant sees its own only."""

    def __init__(
        self, max_responses: int = MAX_STORED_RESPONSES, max_bytes: int = MAX_STORED_BYTES
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._responses: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()

    def __len__(self) -> int:
        return len(self._responses)

    def put(self, tenant: str, response_id: str, response: StoredResponse) -> None:
        """Keep a response. One that is larger than all the room there is goes at once."""
        self._drop((tenant, response_id))
        self._responses[tenant, response_id] = response
        self._num_bytes += response.num_bytes
        while len(self._responses) > self._max_responses or self._num_bytes > self._max_bytes:
            self._drop(next(iter(self._responses)))

    def get(self, tenant: str, response_id: str, param: str | None = None) -> StoredResponse:
        """A response that is kept. Raises HttpError 404."""
        try:
            return self._responses[tenant, response_id]
        except KeyError:
            raise HttpError(
                404,
                f"Response with id {response_id[:200]!r} not found: it was made with store=false, by another server "
                f"or with another key, or is older than the newest {self._max_responses}.",
                param=param,
            ) from None

    def delete(self, tenant: str, response_id: str) -> None:
        """Forget a response. Raises HttpError 404."""
        self.get(tenant, response_id)
        self._drop((tenant, response_id))

    def _drop(self, key: tuple[str, str]) -> None:
        dropped = self._responses.pop(key, None)
        if dropped is not None:
            self._num_bytes -= dropped.num_bytes
