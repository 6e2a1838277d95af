"""Serves model repositories from a folder, in as much of the Hugging Face Hub's protocol as downloads need.

ROOT/owner/name/main holds the name of the newest commit, ROOT/owner/name/COMMIT/ its files. Weights are large files
(LFS), everything else is not.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = {".safetensors", ".bin"}


class Handler(BaseHTTPRequestHandler):
    root: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts[:2] == ["api", "models"]:
            self._api(parts[2:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self._file(f"{parts[0]}/{parts[1]}", parts[3], "/".join(parts[4:]))
        else:
            self._refuse("RepoNotFound")

    do_HEAD = do_GET  # noqa: N815 (the name that http.server calls)

    def _api(self, parts: list[str]) -> None:
        name, rest = "/".join(parts[:2]), parts[2:]
        commit = commit_of(self.root / name, rest[1] if len(rest) > 1 else "main")
        if not (self.root / name / "main").is_file():
            self._refuse("RepoNotFound")
        elif commit is None:
            self._refuse("RevisionNotFound")
        elif not rest or rest[0] == "revision":
            self._json(info(name, commit, self.root / name / commit))
        elif rest[0] == "tree" and len(rest) == 2:
            self._json([entry(path, self.root / name / commit) for path in files(self.root / name / commit)])
        else:
            self._refuse("EntryNotFound")

    def _file(self, name: str, revision: str, path: str) -> None:
        commit = commit_of(self.root / name, revision)
        if commit is None or not (self.root / name / commit / path).is_file():
            self._refuse("EntryNotFound", commit)
            return
        data = (self.root / name / commit / path).read_bytes()
        self.send_response(200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{digest(path, data)}"')
        if Path(path).suffix in LARGE:
            self.send_header("X-Linked-Etag", f'"{digest(path, data)}"')
            self.send_header("X-Linked-Size", str(len(data)))
        self._body(data)

    def _json(self, value: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self._body(json.dumps(value).encode())

    def _refuse(self, code: str, commit: str | None = None) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        if commit is not None:
            self.send_header("X-Repo-Commit", commit)
        self._body(b"")

    def _body(self, data: bytes) -> None:
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def commit_of(folder: Path, revision: str) -> str | None:
    newest = folder / "main"
    if revision == "main":
        return newest.read_text(encoding="utf-8").strip() if newest.is_file() else None
    return revision if (folder / revision).is_dir() else None


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def digest(path: str, data: bytes) -> str:
    if Path(path).suffix in LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def entry(path: str, folder: Path) -> dict[str, Any]:
    data = (folder / path).read_bytes()
    found: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": digest(path, data)}
    if Path(path).suffix in LARGE:
        found["lfs"] = {"oid": digest(path, data), "size": len(data), "pointerSize": 134}
    return found


def info(name: str, commit: str, folder: Path) -> dict[str, Any]:
    siblings = []
    for path in files(folder):
        found = entry(path, folder)
        sibling = {"rfilename": path, "size": found["size"], "blobId": found["oid"]}
        if "lfs" in found:
            sibling["lfs"] = {"sha256": found["oid"], "size": found["size"], "pointerSize": 134}
        siblings.append(sibling)
    return {
        "_id": "0",
        "id": name,
        "modelId": name,
        "sha": commit,
        "siblings": siblings,
        "tags": [],
        "cardData": {"license": "mit", "language": ["de", "en"]},
    }


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The address at which the repositories of the folder are served while the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Serving", (Handler,), {"root": root}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
