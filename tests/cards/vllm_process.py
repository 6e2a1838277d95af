"""A real vLLM server as a process of its own, with the Python that KCARD_TEST_VLLM names."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

STARTED = 300  # seconds that a start may take


class VLLMProcess:
    """`log`: where its output goes. One port, however often it is started."""

    def __init__(self, python: str, log: Path) -> None:
        self._python, self._log = python, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._begun: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, base: Path, *options: str, dtype: str = "float32") -> None:
        """Run it with that base and wait until it answers; nothing where it runs so already."""
        wanted = (str(base), dtype, *options)
        if self._process is not None and self._begun == wanted:
            return
        self.kill()
        self._begun = wanted
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(base),
                    "--host", "127.0.0.1", "--port", str(self.port), "--dtype", dtype, "--enforce-eager",
                    "--max-model-len", "128", *options,
                ],
                stdout=log, stderr=log, start_new_session=True, env=self._environment(),
            )  # fmt: skip
        deadline = time.monotonic() + STARTED
        while not self._answers():
            assert self._process.poll() is None, (
                f"vLLM ended: {self._log.read_text(errors='replace')[-2000:]}"
            )
            assert time.monotonic() < deadline, f"vLLM did not start: {self._log}"
            time.sleep(0.5)

    def kill(self) -> None:
        """kill -9, with its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process, self._begun = None, ()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as found:
                return bool(found.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _environment(self) -> dict[str, str]:
        ours = {"PYTHONPATH", "OMP_NUM_THREADS"}
        kept = {key: value for key, value in os.environ.items() if key not in ours}
        return kept | {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
