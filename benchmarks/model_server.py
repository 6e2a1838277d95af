"""A model behind transformers' own server, which has an OpenAI-compatible API, in a process of its own."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 180  # seconds for the server to start


@contextmanager
def served(model: Path, log: Path) -> Iterator[str]:
    """Run `transformers serve` with the model in this folder; its URL for --llm-url, once it answers.

    What the server prints goes to `log`. Raises RuntimeError where it does not start.
    """
    port = _free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(model)]
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"transformers serve did not start: see {log}")
