"""A model behind an OpenAI-compatible API, in a process of its own: transformers' server, or llama.cpp's for a GGUF."""

import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
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
    with _running([*command, *options], port, log) as (url, _):
        yield url


@contextmanager
def served_gguf(model: Path, log: Path, threads: int | None = None) -> Iterator[str]:
    """Run llama.cpp's server with this GGUF; see `gguf_server`. Its URL, once it answers."""
    with gguf_server(model, log, threads) as (url, _):
        yield url


@contextmanager
def gguf_server(model: Path, log: Path, threads: int | None = None) -> Iterator[tuple[str, int]]:
    """Run llama.cpp's server with this GGUF, one request at a time; its URL and process id, once it answers.

    threads  by default one per core
    log      what the server prints goes there

    SystemExit where the file or the package xllamacpp is missing, RuntimeError where it does not start.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise SystemExit("the package xllamacpp is not installed: pip install xllamacpp")
    if not model.is_file():
        raise SystemExit(f"there is no {model}: name a folder with GGUF files (--models)")
    port = _free_port()
    numbers = [str(port), str(threads or os.cpu_count() or 1)]
    command = [sys.executable, "-m", "benchmarks.model_server", str(model), *numbers]
    with _running(command, port, log) as (url, process_id):
        yield url, process_id


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[tuple[str, int]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1", process.pid
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
            time.sleep(0.1)
    raise RuntimeError(f"the server did not start: see {log}")


CONTEXT = 8192  # tokens


def serve_gguf(model: Path, port: int, threads: int) -> None:
    """Serve a GGUF until the process that started this one is gone."""
    xllamacpp = importlib.import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx, parameters.n_parallel, parameters.port = CONTEXT, 1, port
    parameters.cache_ram_mib = 0  # or a prompt that was read before would cost nothing
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    starter, server = os.getppid(), xllamacpp.Server(parameters)
    while os.getppid() == starter:
        time.sleep(1)
    del server


if __name__ == "__main__":
    serve_gguf(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
