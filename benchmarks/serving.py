"""A shared hub in processes of its own, for measurements: started as users start it, on loopback only."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Server", "serving"]

START_SECONDS = 60


@dataclass(frozen=True)
class Server:
    """A running `kcard hub serve`; `admin` is the token that it printed."""

    home: Path
    database: str | None
    url: str
    admin: str
    process: "subprocess.Popen[bytes]"

    def wait(self) -> None:
        """Wait until it answers and its database does."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/api/models?limit=1", timeout=10).close()
                return
            except (OSError, urllib.error.URLError):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.1)

    def workers(self) -> list[int]:
        """Process ids of the workers that answer requests."""
        listener = _listener(int(self.url.rpartition(":")[2]))
        return [child for child in self._spawned() if listener in _sockets(child)]

    def job_workers(self) -> list[int]:
        """Process ids of the workers that measure cards."""
        listener = _listener(int(self.url.rpartition(":")[2]))
        return [child for child in self._spawned() if listener not in _sockets(child)]

    def children(self, processes: Sequence[int], module: str) -> list[int]:
        """Process ids of those children of processes that run `python -m module`."""
        return [
            child
            for process in processes
            for child in _children(process)
            if module in _command(child).split("\0")
        ]

    def _spawned(self) -> list[int]:
        return [child for child in _children(self.process.pid) if "spawn_main" in _command(child)]

    def memory(self) -> dict[int, int]:
        """Resident bytes of every worker."""
        found = {}
        for worker in self.workers():
            status = Path(f"/proc/{worker}/status").read_text().splitlines()
            resident = next(line for line in status if line.startswith("VmRSS"))
            found[worker] = int(resident.split()[1]) * 1024
        return found

    def token(self, user: str) -> str:
        """A token for a user, who is made where there is none of that name."""
        from kcard.hub.accounts.accounts import Accounts
        from kcard.hub.accounts.tokens import Tokens
        from kcard.hub.refusals import NotThere
        from kcard.hub.registry import Hub

        hub = Hub(self.home, database_url=self.database)
        try:
            accounts = Accounts(hub.database)
            try:
                accounts.get(user)
            except NotThere:
                accounts.add_user(user)
            return Tokens(hub.database).create(user, scope="write")
        finally:
            hub.database.close()


@contextmanager
def serving(
    home: Path,
    database: str | None = None,
    workers: int = 2,
    job_workers: int = 0,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """A new server on a free port; stopped when the block ends. Its log is serve.log beside `home`.

    `options`: further ones of `kcard hub serve`. No job workers unless asked for: they would measure cards meanwhile.
    """
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "kcard", "hub", "serve", "--port", "0", "--workers", str(workers)]
    command += ["--job-workers", str(job_workers), *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KCARD_")}
    environment = kept | {"KCARD_HOME": str(home)} | ({"KCARD_DATABASE_URL": database} if database else {})
    with home.with_name("serve.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            assert process.stdout is not None
            admin = process.stdout.readline().decode().strip()
            url = process.stdout.readline().decode().rpartition(" ")[2].strip()
            if not url.startswith("http"):
                raise RuntimeError(f"the server did not start: {home.with_name('serve.log').read_text()}")
            server = Server(home, database, url, admin, process)
            server.wait()
            yield server
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _children(process: int) -> list[int]:
    found = []
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    except OSError:  # it ended
        pass
    return found


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def _sockets(process: int) -> set[str]:
    """The open sockets of a process, as /proc names them."""
    found = set()
    try:
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            found.add(str(descriptor.readlink()))
    except OSError:  # it ended, or closed one
        pass
    return found


def _listener(port: int) -> str:
    """The listening socket of a port, as /proc names it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            return f"socket:[{fields[9]}]"
    return ""
