"""An HTTP server that gives one answer."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Scripted:
    """Answers everything with `status` and `body`; keeps the last request."""

    def __init__(self) -> None:
        self.status, self.body, self.asked, self.posted = 200, b"", "", b""
        self.headers: dict[str, str] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked, outer.headers = self.path, dict(self.headers)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(outer.body)

            def do_POST(self) -> None:
                outer.posted = self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
