"""An HTTP/1.1 response that streams server-sent events, taken apart as its bytes come. Does no I/O."""

HTTP_OK = 200
MOST_ERROR_BYTES = 2000
"""How much of an error's body is kept."""


class SseResponse:
    """The parser of one response. Understands chunked, sized and unsized bodies, and events of one data line each."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_complete = False
        self._is_chunked = False
        self._bytes_left: int | None = None
        """Of a sized body."""
        self._pending = bytearray()
        self._body = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes of the connection; the data of each event that they complete, in order.

        Raises ValueError for what is not HTTP.
        """
        self._pending += data
        if self.status is None and not self._read_head():
            return []
        self._take_body()
        return self._take_events()

    def end(self) -> None:
        """The connection is closed: an unsized body is complete."""
        if self.status is not None and not self._is_chunked and self._bytes_left is None:
            self.is_complete = True

    def error_text(self) -> str:
        """The body of a response that is no stream, as far as it has come."""
        return self._body[:MOST_ERROR_BYTES].decode(errors="replace").strip()

    def _read_head(self) -> bool:
        head, separator, rest = self._pending.partition(b"\r\n\r\n")
        if not separator:
            return False
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ValueError(f"not an HTTP response: {bytes(first[:80])!r}")
        self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"transfer-encoding" and b"chunked" in value.lower():
                self._is_chunked = True
            elif name.strip().lower() == b"content-length":
                self._bytes_left = int(value)
        self._pending = bytearray(rest)
        return True

    def _take_body(self) -> None:
        if self._is_chunked:
            self._take_chunks()
            return
        self._body += self._pending
        if self._bytes_left is not None:
            self._bytes_left -= len(self._pending)
            self.is_complete = self._bytes_left <= 0
        self._pending.clear()

    def _take_chunks(self) -> None:
        """Move the data of all complete chunks over."""
        start = 0
        while not self.is_complete:
            line_end = self._pending.find(b"\r\n", start)
            if line_end < 0:
                break
            size = _chunk_size(bytes(self._pending[start:line_end]))
            end = line_end + 2 + size
            if len(self._pending) < end + 2:
                break
            self._body += self._pending[line_end + 2 : end]
            start = end + 2
            self.is_complete = size == 0
        del self._pending[:start]

    def _take_events(self) -> list[bytes]:
        if self.status != HTTP_OK:  # an error: its body stays for `error_text`
            return []
        *lines, rest = self._body.split(b"\n")
        self._body = rest
        return [bytes(line[5:]).strip() for line in lines if line.startswith(b"data:")]


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ValueError(f"not the size of a chunk: {line[:80]!r}") from None
