"""A shared hub in processes of its own, for measurements: started as users start it, on loopback only."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
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
        """Process ids of its workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children if b"spawn_main" in _command(child)]

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
def serving(home: Path, database: str | None = None, workers: int = 2) -> Iterator[Server]:
    """A new server on a free port; stopped when the block ends. Its log is serve.log beside `home`."""
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "kcard", "hub", "serve", "--port", "0", "--workers", str(workers)]
    command += ["--job-workers", "0"]  # they would measure cards meanwhile
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


def _command(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
