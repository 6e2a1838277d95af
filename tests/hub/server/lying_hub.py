"""A small upstream hub that a test controls: what it says of repositories, what it sends, and what it was asked."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

__all__ = ["Answer", "LyingHub", "Sent", "lying_hub"]

SHA = "ab" * 20
LONGEST = 30  # seconds


@dataclass(frozen=True)
class Sent:
    """An answer. The second half of its body waits for `until`; `declared`: another Content-Length than its own."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    until: threading.Event | None = None
    declared: int | None = None


# An answer, or one that depends on the token.
Answer: TypeAlias = Sent | Callable[[str | None], Sent]


@dataclass
class LyingHub:
    """`answers` by path, without the query. `asked`: the path and the token of each request."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def model(self, name: str, files: dict[str, bytes], **said: Any) -> None:
        """A model with these files as LFS files, at one commit, which is main's. `said` goes into its description."""
        listed = [_listed(path, content) for path, content in files.items()]
        told = json.dumps(
            {"id": name, "sha": SHA, "siblings": listed, "gated": False, "private": False, **said}
        )
        for revision in ("main", SHA):
            self.answers[f"/api/models/{name}/revision/{revision}"] = Sent(told.encode())
        for path, content in files.items():
            self.answers[f"/{name}/resolve/{SHA}/{path}"] = Sent(content)

    def file(self, name: str, path: str, sent: Answer) -> None:
        """What it sends for a file, whatever it says of it."""
        self.answers[f"/{name}/resolve/{SHA}/{path}"] = sent

    def times(self, path: str) -> int:
        """How often a path that ends so was asked for."""
        return sum(asked.endswith(path) for asked, _ in self.asked)


def _listed(path: str, content: bytes) -> dict[str, Any]:
    sha256, size = hashlib.sha256(content).hexdigest(), len(content)
    return {"rfilename": path, "size": size, "blobId": "cd" * 20, "lfs": {"sha256": sha256, "size": size}}


@contextmanager
def lying_hub() -> Iterator[LyingHub]:
    """Serve one until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, token = self.path.partition("?")[0], self.headers.get("Authorization")
            hub.asked.append((path, token))
            sent = hub.answers.get(path, Sent(b"{}", 404, {"X-Error-Code": "RepoNotFound"}))
            sent = sent if isinstance(sent, Sent) else sent(token)
            self.send_response(sent.status)
            for name, value in sent.headers.items():
                self.send_header(name, value)
            self.send_header(
                "Content-Length", str(len(sent.body) if sent.declared is None else sent.declared)
            )
            self.send_header("Connection", "close")
            self.end_headers()
            half = len(sent.body) // 2
            self.wfile.write(sent.body[:half])
            self.wfile.flush()
            if sent.until is not None:
                sent.until.wait(LONGEST)
            with suppress(ConnectionError):  # whoever asked may have had enough
                self.wfile.write(sent.body[half:])
            self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = LyingHub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
