"""A Hugging Face hub of one repository on this machine, as far as downloads need it."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "c0ffee" + "0" * 34


@contextmanager
def fake_hub(repo_id: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve the files of one repository; yields the address for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            about = f"/api/models/{repo_id}"
            if path == about or path.startswith(f"{about}/revision/"):
                siblings = [{"rfilename": name} for name in files]
                self._json({"id": repo_id, "sha": COMMIT, "siblings": siblings})
            elif path.startswith(f"{about}/tree/"):
                self._json(
                    [
                        {"type": "file", "path": name, "size": len(data), "oid": _oid(data)}
                        for name, data in files.items()
                    ]
                )
            else:
                self._file(path)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _file(self, path: str) -> None:
            prefix = f"/{repo_id}/resolve/"
            _, _, name = path.removeprefix(prefix).partition("/")
            if not path.startswith(prefix) or name not in files:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._send(files[name], {"ETag": f'"{_oid(files[name])}"', "X-Repo-Commit": COMMIT})

        def _json(self, value: object) -> None:
            self._send(json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(200)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _oid(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
