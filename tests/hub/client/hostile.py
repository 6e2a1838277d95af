"""A hub that attacks its clients: it serves one card, and whatever else a test puts in place of an answer."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from kcard.manifest import MANIFEST

COMMIT = "c" * 40
NAME = "evil/card"
Answer = Callable[[BaseHTTPRequestHandler], None]


def card(files: Mapping[str, bytes], **fields: Any) -> dict[str, bytes]:
    """The files with a kcard.json that lists them, without any check."""
    listed = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    manifest = {"format": 1, "name": "card", "description": "A card", "kind": "retrieval", "files": listed}
    return {**files, MANIFEST: json.dumps(manifest | fields).encode()}


@dataclass
class Hostile:
    """`files` of the repository evil/card; `answers` by path, instead of the usual ones; the requests so far, and the
    body of the last one."""

    files: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    body: bytes = b""

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(handler.path).path)
        headers = {key.lower(): value for key, value in handler.headers.items()}
        self.requests.append((handler.command, handler.path, headers))
        if (answer := self.answers.get(path)) is not None:
            answer(handler)
        elif path.startswith(f"/{NAME}/resolve/{COMMIT}/"):
            self._file(handler, path.split("/", 5)[5])
        else:
            send_json(handler, self._api(path))

    def _api(self, path: str) -> Any:
        if path == "/api/models":
            return [{"id": NAME, "tags": ["knowledge-card"], "private": False}]
        if path.endswith("/refs"):
            main = {"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}
            return {"branches": [main], "converts": [], "tags": []}
        if "/tree/" in path:
            return [
                {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                for name, content in self.files.items()
            ]
        if path == "/api/whoami-v2":
            return {"type": "user", "name": "eve", "orgs": [], "auth": {"accessToken": {}}}
        return {"id": NAME, "sha": COMMIT, "siblings": []}

    def _file(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        content = self.files.get(path)
        if content is None:
            send(handler, b"", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            send(handler, content, headers=file_headers(content))


def file_headers(content: bytes) -> dict[str, str]:
    return {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}


def send_json(handler: BaseHTTPRequestHandler, value: Any) -> None:
    send(handler, json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def send(
    handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


@dataclass
class Endless:
    """An answer that goes on; `sent`: how many megabytes went out, `most` at most."""

    most: int = 64
    sent: int = 0

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in (file_headers(b"") | {"Connection": "close"}).items():
            handler.send_header(name, value)
        handler.end_headers()
        while handler.command != "HEAD" and self.sent < self.most:
            handler.wfile.write(b"x" * (1 << 20))
            self.sent += 1


@contextmanager
def hostile_hub(**options: Any) -> Iterator[Hostile]:
    """The hub, served on a port of its own until the block ends. Real clients in this process may reach it."""
    from huggingface_hub import constants

    hub = Hostile(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                hub.respond(self)
            except (BrokenPipeError, ConnectionResetError):  # the client has had enough
                self.close_connection = True

        do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 (the names that http.server calls)

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    offline, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        constants.HF_HUB_OFFLINE = offline
        server.shutdown()
        server.server_close()
