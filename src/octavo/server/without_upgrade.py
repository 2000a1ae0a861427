"""Requests that offer another protocol (`Upgrade: h2c`, as Java's HTTP client does) are answered as if they did not.

The parser takes what follows such a request for the other protocol and drops its body, so it is parsed once more
without the offer.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_OFFER = frozenset((b"upgrade", b"http2-settings"))


class WithoutUpgrade(HttpToolsProtocol):
    """A connection that stays with HTTP/1."""

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("This is not a valid HTTP request")

    def on_headers_complete(self) -> None:
        """Wait for the second parse if another protocol is offered."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """As above."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _decline(self, rest: bytes) -> None:
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is for proxies")
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b", ".join(t for t in value.split(b",") if t.strip().lower() not in _OFFER)
            if name not in _OFFER:
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        WithoutUpgrade.data_received(self, b"\r\n".join((*lines, b"\r\n")) + rest)
