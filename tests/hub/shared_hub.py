"""A shared hub for tests: accounts, tokens and the application, served by uvicorn in a thread on a port of its own.

The fixture `shared` (conftest.py) has one for each module.

The people: ada administers the hub, bob is a user and an administrator of the organisation lab, cleo may write in
lab, dan belongs to nothing. `tokens` has one of each scope: "bob" may write, "bob:read" read, "bob:admin" everything
that bob may.
"""

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import uvicorn
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Commit, Repository, RepositoryType
from kcard.hub.errors import Conflict
from kcard.hub.server.app import create_app
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.limits import Connection
from kcard.hub.services import HubServices
from kcard.hub.storage import partial_folder
from kcard.hub.trees import git_oid, lfs_pointer_oid
from kcard.hub.values import Add, Entry

USERS = ("ada", "bob", "cleo", "dan")
ORGANISATION = "lab"
LARGE = (".safetensors", ".parquet")  # what `put` stores as LFS files
SCOPES: tuple[Literal["read", "write", "admin"], ...] = ("read", "write", "admin")
START_SECONDS = 30


@dataclass(frozen=True)
class Shared:
    """A running hub. `tokens` has "ada", "bob", … (scope write) and "bob:read", "bob:admin", …"""

    url: str
    hub: HubServices
    folder: Path
    tokens: Mapping[str, str]
    _clients: list[httpx.Client] = field(default_factory=list)

    def identity(self, who: str) -> Identity:
        """Whom a token proves."""
        identity = self.hub.tokens.identify(self.tokens[who])
        assert identity is not None
        return identity

    def api(self, who: str | None = None) -> HfApi:
        """The real client in this process, as somebody or as nobody. Give downloads a `cache_dir` of the test."""
        return HfApi(endpoint=self.url, token=False if who is None else self.tokens[who])

    def http(self, who: str | None = None, token: str | None = None) -> httpx.Client:
        """A plain HTTP client with the token of somebody, this token or none; it follows no redirects."""
        token = token if who is None else self.tokens[who]
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        self._clients.append(client)
        return client

    def run(self, code: str, who: str, **environment: str) -> str:
        """What a Python program prints, with HF_ENDPOINT set before it imports anything; a home of its own."""
        home = self.folder / "client"
        home.mkdir(exist_ok=True)
        ours = {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home / "hf"),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_TOKEN": self.tokens[who],
            "KCARD_HOME": str(home / "kcard"),
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **ours, **environment},
            cwd=home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def create(
        self,
        name: str,
        kind: RepositoryType = "model",
        *,
        private: bool = False,
        gated: Literal["no", "auto", "manual"] = "no",
        files: Mapping[str, bytes] | None = None,
    ) -> Repository:
        """A repository with these files, without a request, by ada; the namespace must be there."""
        hub = self.hub
        namespace = hub.accounts.get(name.partition("/")[0])
        repository = hub.repositories.create(
            kind, namespace.id, name, private=private, by=self.identity("ada:admin")
        )
        if gated != "no":
            repository = hub.repositories.update(repository, gated=gated)
        if files is not None:
            self.put(name, files, kind)
        return repository

    def put(
        self,
        name: str,
        files: Mapping[str, bytes],
        kind: RepositoryType = "model",
        *,
        branch: str = "main",
        title: str = "Files",
    ) -> Commit:
        """A commit with these files without a request, by ada; what ends like LARGE becomes LFS files."""
        by = self.identity("ada:admin")
        repository = self.hub.repositories.get(kind, name)
        self._upload(by, {hashlib.sha256(content).hexdigest(): content for content in files.values()})
        operations = [Add(_entry(path, content)) for path, content in files.items()]
        return self.hub.commits.add(
            repository, branch, operations, parent=None, title=title, message="", identity=by
        )

    def publish(self, name: str, files: Mapping[str, bytes], tag: str = "v1", title: str = "Files") -> str:
        """Commit the files of a card, to a new repository where there is none, and publish them; its sha256."""
        with suppress(Conflict):
            self.create(name)
        commit = self.put(name, files, title=title)
        repository = self.hub.repositories.get("model", name)
        by = self.identity("ada:admin")
        published = self.hub.publications.publish(repository, tag, commit.sha, by)
        assert published is not None
        return published.version

    def _upload(self, by: Identity, contents: Mapping[str, bytes]) -> None:
        with partial_folder(self.hub.blobs.partial) as scratch:
            for sha256, content in contents.items():
                (scratch / sha256).write_bytes(content)
            files = [(scratch / sha256, sha256, len(content)) for sha256, content in contents.items()]
            self.hub.uploads.store_all(by, files)


@contextmanager
def shared_hub(
    folder: Path, options: ServerOptions | None = None, *, database_url: str | None = None, **settings: Any
) -> Iterator[Shared]:
    """A hub in a new folder with its people, being served; `settings` go to HubServices.

    Real clients in this process may reach it: conftest forbids them the network otherwise.
    """
    hub = HubServices(folder / "home", database_url=database_url, **settings)
    tokens = _people(hub)
    offline, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    xet, constants.HF_HUB_DISABLE_XET = constants.HF_HUB_DISABLE_XET, True  # the hub does not speak it
    clients: list[httpx.Client] = []
    try:
        with running(hub, options) as url:
            yield Shared(url, hub, folder, tokens, clients)
    finally:
        constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_XET = offline, xet
        for client in clients:
            client.close()


@contextmanager
def running(hub: HubServices, options: ServerOptions | None = None) -> Iterator[str]:
    """The URL of the application of a hub, served in a thread until the block ends."""
    with serving(create_app(hub, options), lifespan="on") as url:
        yield url


@contextmanager
def serving(app: Any, **settings: Any) -> Iterator[str]:
    """Likewise of any application, with settings of uvicorn."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", http=Connection, **settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        assert thread.is_alive(), "the server ended while it started"
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=START_SECONDS)
        assert not thread.is_alive(), "the server did not stop"


def _entry(path: str, content: bytes) -> Entry:
    sha256, lfs = hashlib.sha256(content).hexdigest(), path.endswith(LARGE)
    oid = lfs_pointer_oid(sha256, len(content)) if lfs else git_oid(content)
    return Entry(path, oid, sha256, len(content), lfs)


def _people(hub: HubServices) -> dict[str, str]:
    for name in USERS:
        hub.accounts.add_user(name, fullname=name.title(), email=f"{name}@example.org", admin=name == "ada")
    hub.accounts.add_organisation(ORGANISATION, owner="bob")
    hub.accounts.set_member(ORGANISATION, "cleo", "write")
    scoped = {
        f"{name}:{scope}": hub.tokens.create(name, name=scope, scope=scope)
        for name in USERS
        for scope in SCOPES
    }
    return scoped | {name: scoped[f"{name}:write"] for name in USERS}


def status(error: pytest.ExceptionInfo[HfHubHTTPError]) -> int:
    """The status of the answer that a client reported as an error."""
    return int(error.value.response.status_code)
