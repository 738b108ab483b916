"""A stub of an OpenAI-compatible endpoint on the loopback, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Stub:
    """Answers every chat with ``reply(body)``: a text, an int (an HTTP error), or bytes sent as they are."""

    def __init__(self, reply: Callable[[dict[str, Any]], Any]):
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.bodies.append(body)
                stub.headers.append(dict(self.headers))
                stub.paths.append(self.path)
                said = reply(body)
                if isinstance(said, str):
                    said = json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode()
                self.send_response(said if isinstance(said, int) else 200)
                self.end_headers()
                self.wfile.write(b"no" if isinstance(said, int) else said)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
