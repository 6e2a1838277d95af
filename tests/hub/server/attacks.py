"""Requests that no well-behaved client sends, for the tests of what a shared hub refuses."""

import base64
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.hub.shared_hub import Shared

Line = dict[str, Any]
HEADER: Line = {"key": "header", "value": {"summary": "an attack", "description": ""}}


class Code:
    """A pickle of this runs a command when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.system, ("echo attacked",)


def inline(path: str, content: bytes) -> Line:
    """A file inside a commit."""
    text = base64.b64encode(content).decode()
    return {"key": "file", "value": {"path": path, "content": text, "encoding": "base64"}}


def large(path: str, sha256: str, size: int | None = None) -> Line:
    """A large file that is said to be there; without a size it is a copy."""
    value = {"path": path, "algo": "sha256", "oid": sha256} | ({} if size is None else {"size": size})
    return {"key": "lfsFile", "value": value}


def deleted(path: str, kind: str = "deletedFile") -> Line:
    """A file or folder to delete."""
    return {"key": kind, "value": {"path": path}}


def lines(*operations: Line) -> bytes:
    """The body of a commit."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in (HEADER, *operations))


def commit(
    shared: Shared, who: str | None, name: str, *operations: Line, url: str = "", query: str = ""
) -> httpx.Response:
    """The answer to a commit to main; `url` is of another server of the same hub."""
    address = f"{url or shared.url}/api/models/{name}/commit/main{query}"
    return shared.http(who).post(address, content=lines(*operations))


def preupload(
    shared: Shared, who: str | None, name: str, files: Iterable[tuple[str, int]], url: str = ""
) -> httpx.Response:
    """The answer to the question how files of these paths and sizes are to be sent."""
    coming = [{"path": path, "size": size, "sample": ""} for path, size in files]
    address = f"{url or shared.url}/api/models/{name}/preupload/main"
    return shared.http(who).post(address, json={"files": coming})


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def request_batch(client: httpx.Client, repository: str, *contents: bytes, **more: Any) -> httpx.Response:
    """The answer to the question where files are to be sent by LFS."""
    objects = [{"oid": digest(content), "size": len(content)} for content in contents]
    body = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": objects, **more}
    return client.post(f"/{repository}.git/info/lfs/objects/batch", json=body)


def request_upload(client: httpx.Client, repository: str, content: bytes, **more: Any) -> dict[str, Any]:
    """Likewise for one file: the action `upload`, or the item where it has none."""
    answer = request_batch(client, repository, content, **more)
    assert answer.status_code == 200, answer.text
    item: dict[str, Any] = answer.json()["objects"][0]
    action: dict[str, Any] = item.get("actions", {}).get("upload", item)
    return action


def connect(url: str, timeout: float = 30) -> socket.socket:
    """A connection to a server."""
    address = urlsplit(url)
    return socket.create_connection((str(address.hostname), int(address.port or 80)), timeout)


def wait_for(is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def end_right(shared: Shared, what: str, token: str) -> None:
    """End what allows cleo to write: her token of this name, her account or her role."""
    if what == "token":
        shared.hub.tokens.revoke("cleo", token)
    elif what == "account":
        shared.hub.accounts.update("cleo", disabled=True)
    else:
        shared.hub.accounts.set_member("lab", "cleo", "read")


def raw(shared: Shared, request: bytes, *more: bytes) -> bytes:
    """Everything that comes back for bytes on a connection of their own, until it ends or stands still for a second."""
    answer = b""
    with connect(shared.url) as connection:
        try:
            for part in (request, *more):
                connection.sendall(part)
            while block := connection.recv(65536):
                answer += block
                connection.settimeout(1)
        except (TimeoutError, ConnectionError):
            pass
    return answer
