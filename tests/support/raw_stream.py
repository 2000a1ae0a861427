"""A streaming client on a bare socket, so that a test decides when, whether and how fast it reads."""

import json
import re
import socket
import struct
from typing import Any
from urllib.parse import urlsplit


class RawStream:
    """One POST over its own connection, with a small receive buffer."""

    def __init__(
        self, url: str, path: str, body: dict[str, Any], *, receive_buffer: int = 4096
    ) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        address = urlsplit(url)
        self.socket.connect((address.hostname, address.port))
        data = json.dumps(body).encode()
        self.socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        self.received = b""

    def read_some(self, size: int = 4096) -> bytes:
        """What comes next; empty at the end."""
        try:
            data = self.socket.recv(size)
        except ConnectionResetError:
            data = b""
        self.received += data
        return data

    def read_headers(self) -> int:
        """Read until the headers are complete. Returns the status."""
        while b"\r\n\r\n" not in self.received:
            assert self.read_some(512), f"the connection has ended: {self.received!r}"
        return int(self.received.split(b" ", 2)[1])

    def read_rest(self) -> str:
        """Read to the end of the response or of the connection. Returns the body, without any chunked framing."""
        while not self._is_complete() and self.read_some(65536):
            pass
        return self.body()

    def body(self) -> str:
        """The body as far as it has come; of chunked ones complete chunks only."""
        _, _, data = self.received.partition(b"\r\n\r\n")
        if self._content_length() is not None:
            return data.decode("utf-8")
        body = b""
        while b"\r\n" in data:
            size, _, data = data.partition(b"\r\n")
            length = int(size, 16)
            if length == 0 or len(data) < length + 2:
                break
            assert data[length : length + 2] == b"\r\n", "the chunked framing is broken"
            body += data[:length]
            data = data[length + 2 :]
        return body.decode("utf-8")

    def _content_length(self) -> int | None:
        headers = self.received.partition(b"\r\n\r\n")[0].lower()
        found = re.search(rb"content-length: (\d+)", headers)
        return int(found[1]) if found else None

    def _is_complete(self) -> bool:
        length = self._content_length()
        if length is None:
            return self.received.endswith(b"\r\n0\r\n\r\n")
        return len(self.received.partition(b"\r\n\r\n")[2]) >= length

    def vanish(self, *, reset: bool) -> None:
        """Close, as a killed process (`reset`) or as an orderly one does."""
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
