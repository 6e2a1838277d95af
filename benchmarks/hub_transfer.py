"""How fast a shared hub takes and gives large files, and how much memory its workers need for that.

    python -m benchmarks.hub_transfer --megabytes 500 --adapter-megabytes 40 --json

On loopback, by the real client (huggingface_hub): a model up and down by LFS, beside sha256sum and cp of the same
file in the same run; an adapter up by Xet. `memory` is the resident size of every worker, in MB: at the start and the
highest while it worked.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.serving import Server, serving

__all__: list[str] = []

MEGABYTE = 1_000_000
MODEL, ADAPTER = "model.safetensors", "adapter_model.safetensors"

# What a client does, timed without its imports; a process of its own, since the client reads its settings once.
UP = """
import sys, time
from huggingface_hub import HfApi
api = HfApi()
api.create_repo(sys.argv[1], exist_ok=True)
start = time.perf_counter()
api.upload_file(path_or_fileobj=sys.argv[2], path_in_repo=sys.argv[3], repo_id=sys.argv[1])
print(time.perf_counter() - start)
"""
DOWN = """
import sys, time
from huggingface_hub import hf_hub_download
start = time.perf_counter()
hf_hub_download(sys.argv[1], sys.argv[3], local_dir=sys.argv[2])
print(time.perf_counter() - start)
"""


class Memory:
    """Samples the resident size of the server's workers while a block runs."""

    def __init__(self, server: Server) -> None:
        self._server, self._stopped = server, threading.Event()
        self.start = server.memory()
        self.highest = dict(self.start)

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._sample)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _sample(self) -> None:
        while not self._stopped.wait(0.02):
            for worker, resident in self._server.memory().items():
                self.highest[worker] = max(resident, self.highest.get(worker, 0))


def random_safetensors(path: Path, size: int) -> str:
    """Write a valid file of random numbers; its sha256."""
    length = size - size % 4
    tensor = {"dtype": "F32", "shape": [length // 4], "data_offsets": [0, length]}
    header = json.dumps({"weight": tensor}).encode()
    header += b" " * (-len(header) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as stream:
        for block in (len(header).to_bytes(8, "little"), header, *_random(length)):
            digest.update(block)
            stream.write(block)
    return digest.hexdigest()


def _random(length: int) -> Iterator[bytes]:
    for start in range(0, length, 4 * MEGABYTE):
        yield os.urandom(min(4 * MEGABYTE, length - start))


def timed(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def client(code: str, arguments: Sequence[str], server: Server, token: str, scratch: Path) -> float:
    """Seconds that the real client took."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "KCARD_"))}
    ours = {"HF_HOME": str(scratch / "hf"), "HF_ENDPOINT": server.url, "HF_TOKEN": token}
    ours |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    ours |= {"HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=kept | ours, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout.splitlines()[-1])


def measured(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    model, adapter = scratch / MODEL, scratch / ADAPTER
    sha256 = random_safetensors(model, int(arguments.megabytes * MEGABYTE))
    random_safetensors(adapter, int(arguments.adapter_megabytes * MEGABYTE))
    with serving(scratch / "home", arguments.database_url, arguments.workers) as server:
        token, memory = server.token("ada"), Memory(server)
        with memory.watched():
            found = {
                "sha256sum_s": timed(["sha256sum", str(model)]),
                "cp_s": timed(["cp", "--reflink=never", str(model), str(scratch / "copy")]),
                "lfs_up_s": client(UP, ["ada/model", str(model), MODEL], server, token, scratch),
                "lfs_down_s": client(
                    DOWN, ["ada/model", str(scratch / "down"), MODEL], server, token, scratch
                ),
            }
        workers = [
            {"start": round(memory.start.get(worker, 0) / MEGABYTE), "highest": round(highest / MEGABYTE)}
            for worker, highest in memory.highest.items()
        ]
    with (scratch / "down" / MODEL).open("rb") as stream:
        right = hashlib.file_digest(stream, "sha256").hexdigest() == sha256
    return {
        "megabytes": arguments.megabytes,
        "adapter_megabytes": arguments.adapter_megabytes,
        **{name: round(seconds, 3) for name, seconds in found.items()},
        "up_of_sha256sum_and_cp": round(found["lfs_up_s"] / (found["sha256sum_s"] + found["cp_s"]), 2),
        "down_of_cp": round(found["lfs_down_s"] / found["cp_s"], 2),
        "memory": workers,
        "sha256_right": right,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--adapter-megabytes", type=float, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--database-url", help="[default: a SQLite file]")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kcard-transfer-") as folder:
        found = measured(arguments, Path(folder))
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for key, value in found.items():
            print(f"{key:<24} {value}")
    return 0 if found["sha256_right"] else 1


if __name__ == "__main__":
    sys.exit(main())
