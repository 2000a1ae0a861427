"""The outputs of one request on their way to its reader."""

import asyncio
from types import TracebackType
from typing import Protocol, TypeAlias

from octavo.engine.messages import Pooled, PromptLogprobs, RequestEnd, SequenceOutput, merged
from octavo.engine.named_errors import error_named
from octavo.errors import OctavoError

RequestItem: TypeAlias = SequenceOutput | PromptLogprobs | Pooled | RequestEnd


class StreamOwner(Protocol):
    """What a stream asks of the client."""

    async def open_stream(self, stream: "RequestStream", frame: bytes) -> None:
        """Send the request. Raises if the engine does not serve."""

    def leave_stream(self, stream: "RequestStream") -> None:
        """The reader has gone: abort the request unless it has ended."""

    def abort_sequence(self, stream: "RequestStream", index: int) -> None:
        """The reader wants no more of one sequence: free what it holds."""


class RequestStream:
    """Async context manager and iterator over what a request produces; the last item is its `RequestEnd`.

    Entering submits, leaving aborts what has not ended. What a slow reader has not taken is merged: at most one
    `SequenceOutput` of each sequence waits, so its memory is that of the tokens.
    """

    def __init__(self, owner: StreamOwner, request_id: str, frame: bytes) -> None:
        self.request_id = request_id
        self.num_cached_tokens = 0
        """Prompt tokens that were in the prefix cache; known before the first token comes."""
        self._owner = owner
        self._frame = frame
        self._outputs: dict[int, SequenceOutput] = {}
        self._prompt_logprobs: PromptLogprobs | None = None
        self._pooled: Pooled | None = None
        self._end: RequestEnd | None = None
        self._error: OctavoError | None = None
        self._has_ended = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the engine has said its last word on the request."""
        return self._has_ended

    async def __aenter__(self) -> "RequestStream":
        await self._owner.open_stream(self, self._frame)
        self._frame = b""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._owner.leave_stream(self)

    def __aiter__(self) -> "RequestStream":
        return self

    async def __anext__(self) -> RequestItem:
        while True:
            item = self._take()
            if item is not None:
                return item
            if self._error is not None:
                raise self._error
            if self._has_ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def abort_sequence(self, index: int) -> None:
        """Want no more of one sequence. Its tokens that are on their way still come, and last its end ("abort")."""
        self._owner.abort_sequence(self, index)

    def put(self, output: SequenceOutput) -> None:
        """New tokens of one of the sequences."""
        waiting = self._outputs.get(output.index)
        self._outputs[output.index] = output if waiting is None else merged(waiting, output)
        self._wake()

    def put_prompt_logprobs(self, values: PromptLogprobs) -> None:
        """The log-probabilities of the prompt; once, before the first token."""
        self._prompt_logprobs = values
        self._wake()

    def put_pooled(self, pooled: Pooled) -> None:
        """The vector of the prompt; once, before the first token."""
        self._pooled = pooled
        self._wake()

    def end(self, end: RequestEnd) -> None:
        """The last word of the engine."""
        if end.error is None:
            self._end = end
        else:
            self._error = error_named(
                end.error_type, end.error, end.error_parameter, end.retry_after_s
            )
        self._has_ended = True
        self._wake()

    def fail(self, error: OctavoError) -> None:
        """The engine will say nothing more."""
        self._error = error
        self._has_ended = True
        self._wake()

    def _take(self) -> RequestItem | None:
        if self._prompt_logprobs is not None:
            values, self._prompt_logprobs = self._prompt_logprobs, None
            return values
        if self._pooled is not None:
            pooled, self._pooled = self._pooled, None
            return pooled
        if self._outputs:
            return self._outputs.pop(next(iter(self._outputs)))
        end, self._end = self._end, None
        return end

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
