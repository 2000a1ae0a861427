"""A server that streams completions as told: what it does is the first token of the prompt."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD, REFUSED, CUT, BROKEN, SHORT, SILENT_USAGE = range(6)
PAUSE_S = 0.01


@dataclass
class StreamServer:
    """Where it listens and what it saw."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    num_open: int = 0
    most_open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextlib.contextmanager
def stream_server() -> Iterator[StreamServer]:
    """A server on a free loopback port."""
    seen = StreamServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = b'{"data": [{"id": "scripted"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with seen.lock:
                seen.bodies.append(body)
                seen.num_open += 1
                seen.most_open = max(seen.most_open, seen.num_open)
            try:
                is_whole = self._answer(body)
            finally:
                with seen.lock:
                    seen.num_open -= 1  # before the client knows, and sends the next one
                self.close_connection = True
            if is_whole:
                self._event("[DONE]")
                self.wfile.write(b"0\r\n\r\n")

        def _answer(self, body: dict[str, Any]) -> bool:
            """All but the end of the stream; whether that is to come."""
            kind = body["prompt"][0]
            if kind == REFUSED:
                self.send_error(503, "busy")
                return False
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            count = body["max_tokens"] - (kind == SHORT)
            for i in range(count):
                if i:
                    time.sleep(PAUSE_S)
                if kind == CUT and i == 1:
                    return False
                if kind == BROKEN and i == 1:
                    self._event('{"error": {"message": "no more"}}')
                    break
                self._event('{"choices": [{"index": 0, "text": "a"}]}')
            if kind not in (BROKEN, SILENT_USAGE):
                usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}
                self._event(json.dumps({"choices": [], "usage": usage}))
            return True

        def _event(self, data: str) -> None:
            chunk = f"data: {data}\n\n".encode()
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # connections that come at once are not told to come again

    server = Server(("127.0.0.1", 0), Handler)
    seen.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
