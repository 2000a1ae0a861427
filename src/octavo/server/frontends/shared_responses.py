"""Stored responses of several front ends: the supervisor keeps them, and front ends ask it over a socket.

So there is one store with one bound, in the memory of a process that outlives its front ends. A message is its length,
four bytes, and MessagePack.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from octavo.errors import EngineDeadError
from octavo.server.openai.responses.store import Responses, StoredResponse

_SOCKET = "responses"
"""Its name in the engine's private folder."""
_LENGTH = struct.Struct("<I")
_Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Put(msgspec.Struct, frozen=True, tag=True):
    """Keep a response."""

    tenant: str
    response_id: str
    response: StoredResponse


class Get(msgspec.Struct, frozen=True, tag=True):
    """Say a response."""

    tenant: str
    response_id: str


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Forget a response."""

    tenant: str
    response_id: str


_Asked: TypeAlias = Put | Get | Delete
_Answer: TypeAlias = StoredResponse | bool | None
_decode_asked = msgspec.msgpack.Decoder(_Asked).decode
_decode_answer = msgspec.msgpack.Decoder(_Answer).decode


@contextlib.asynccontextmanager
async def serving_responses(folder: Path, store: Responses) -> AsyncIterator[None]:
    """Answer all front ends while this is open."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections[task] = writer
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # it has ended
            while True:
                _write(writer, await _done(store, _decode_asked(await _read(reader))))
                await writer.drain()
        writer.close()
        del connections[task]

    server = await asyncio.start_unix_server(answer, folder / _SOCKET)
    try:
        yield
    finally:
        server.close()
        for writer in connections.values():
            writer.close()
        await asyncio.gather(*connections)


async def _done(store: Responses, asked: _Asked) -> _Answer:
    if isinstance(asked, Put):
        await store.put(asked.tenant, asked.response_id, asked.response)
        return None
    if isinstance(asked, Get):
        return await store.get(asked.tenant, asked.response_id)
    return await store.delete(asked.tenant, asked.response_id)


class SharedResponses:
    """Implements `Responses` in a front end. Methods raise EngineDeadError when the supervisor has ended."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the engine's, where the supervisor listens."""
        self._path = folder / _SOCKET
        self._stream: _Stream | None = None
        self._turn = asyncio.Lock()

    async def put(self, tenant: str, response_id: str, response: StoredResponse) -> None:
        """See `Responses`."""
        await self._ask(Put(tenant, response_id, response))

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """See `Responses`."""
        answer = await self._ask(Get(tenant, response_id))
        assert not isinstance(answer, bool)
        return answer

    async def delete(self, tenant: str, response_id: str) -> bool:
        """See `Responses`."""
        return await self._ask(Delete(tenant, response_id)) is True

    async def _ask(self, asked: _Asked) -> _Answer:
        async with self._turn:
            try:
                reader, writer = await self._connected()
                _write(writer, asked)
                await writer.drain()
                return _decode_answer(await _read(reader))
            except (OSError, asyncio.IncompleteReadError) as error:
                self._drop()
                raise EngineDeadError("the process that keeps responses has ended") from error
            except asyncio.CancelledError:
                self._drop()  # the answer that is on its way is not the next one's
                raise

    async def _connected(self) -> _Stream:
        if self._stream is None:
            self._stream = await asyncio.open_unix_connection(self._path)
        return self._stream

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._stream is not None:
            _, writer = self._stream
            self._drop()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


def _write(writer: asyncio.StreamWriter, message: _Asked | _Answer) -> None:
    data = msgspec.msgpack.encode(message)
    writer.write(_LENGTH.pack(len(data)) + data)
