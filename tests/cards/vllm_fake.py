"""A server that speaks vLLM's protocol in this process, strictly, with a tiny model of transformers behind it.

It stands in for vLLM where the protocol is tested: which requests are sent, what their answers and refusals lead to.
What vLLM itself computes is tested with vLLM (test_vllm_backend.py, slow).
Requests that vLLM 0.32 would refuse are refused with its words, and fields that kcard has no reason to send are
refused too.
"""

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

FIELDS = {
    "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "ignore_eos", "stop_token_ids", "return_token_ids", "logprobs",
    "allowed_token_ids", "cache_salt",
}  # fmt: skip


@cache
def _model_in(base: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(base).eval()


@cache
def _adapted(base: Path, adapter: Path) -> Any:
    return PeftModel.from_pretrained(copy.deepcopy(_model_in(base)), adapter).eval()


@cache
def _next(model: Any, ids: tuple[int, ...]) -> torch.Tensor:
    """Logits of the next token. Programs ask for the same again and again."""
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=torch.tensor([ids])).logits[0, -1].float()
    return found


class Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeVLLM:
    """A base of transformers and the adapters that were loaded on it.

    adapters   folders by name, the oldest first
    requests   (path, body) of every request
    written    the bodies of those that got a document, those of fingerprints left out
    unapplied  names of adapters that are listed, but answered for by the base
    forgotten  so many adapters that are loaded are dropped at once, as by another program
    gather     documents that are answered only once so many were asked for
    runtime    whether adapters may be loaded while it runs
    """

    def __init__(self, base: Path, name: str | None = None, *, runtime: bool = True, key: str = "") -> None:
        self.base, self.name, self.runtime, self.key = base, name or str(base), runtime, key
        self.adapters: dict[str, Path] = {}
        self.most = 0
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.written: list[dict[str, Any]] = []
        self.unapplied: set[str] = set()
        self.rank = 8
        self.metrics = ""
        self.fault = ""
        self.gather = 0
        self.forgotten = 0
        self._gathered = threading.Condition()
        self.released = threading.Event()
        self._lock = threading.Lock()
        # Read here, in the test's own thread: transformers changes torch for a moment while it reads a model.
        self._bare = _model_in(base)

    def restart(self, base: Path | None = None) -> None:
        """Adapters are gone after a restart."""
        with self._lock:
            if base is not None:
                self.base, self._bare = base, _model_in(base)
            self.adapters.clear()

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        self.requests.append((path, body))
        if self.gather and path == "/v1/completions" and "logprobs" not in body:
            self._wait()
        with self._lock:
            if path == "/v1/models":
                return self._listed()
            if path == "/v1/completions":
                return self._completion(body)
            if path == "/v1/load_lora_adapter" and self.runtime:
                return self._load(body)
            if path == "/v1/unload_lora_adapter" and self.runtime:
                return self._unload(body)
        raise Refusal(404, "")

    def _wait(self) -> None:
        with self._gathered:
            self.gather -= 1
            self._gathered.notify_all()
            if not self._gathered.wait_for(lambda: self.gather == 0, 10):
                raise Refusal(500, "the documents were not asked for together")

    def _listed(self) -> dict[str, Any]:
        def model(name: str, root: Path, parent: str | None, context: int | None) -> dict[str, Any]:
            return {
                "id": name, "object": "model", "created": 1, "owned_by": "vllm", "root": str(root),
                "parent": parent, "max_model_len": context,
            }  # fmt: skip

        adapters = [model(name, folder, self.name, None) for name, folder in self.adapters.items()]
        return {"object": "list", "data": [model(self.name, self.base, None, 128), *adapters]}

    def _load(self, body: dict[str, Any]) -> str:
        name, folder = body["lora_name"], Path(body["lora_path"])
        if name in self.adapters:
            raise Refusal(400, f"The lora adapter '{name}' has already been loaded.")
        if not (folder / "adapter_config.json").is_file():
            raise Refusal(404, f"Loading lora {name} failed: No adapter found for <path>")
        rank = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["r"]
        if rank > self.rank:
            raise Refusal(500, f"LoRA rank {rank} is greater than max_lora_rank {self.rank}.")
        if self.forgotten:
            self.forgotten -= 1
        else:
            self.adapters[name] = folder
        self.most = max(self.most, len(self.adapters))
        return f"Success: LoRA adapter '{name}' added successfully."

    def _unload(self, body: dict[str, Any]) -> str:
        if body["lora_name"] not in self.adapters:
            raise Refusal(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        del self.adapters[body["lora_name"]]
        return f"Success: LoRA adapter '{body['lora_name']}' removed successfully."

    def _model(self, name: str) -> Any:
        if name != self.name and name not in self.adapters:
            raise Refusal(404, f"The model `{name}` does not exist.")
        if name == self.name or name in self.unapplied:
            return self._bare
        return _adapted(self.base, self.adapters[name])

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        if unknown := body.keys() - FIELDS:
            raise Refusal(400, f"unexpected fields {sorted(unknown)}")
        model, prompts = self._model(body["model"]), body["prompt"]
        for prompt in prompts:
            if not prompt or not all(type(token) is int and token >= 0 for token in prompt):
                raise Refusal(400, "prompt must be token ids")
            if not 1 <= body["max_tokens"] <= 128 - len(prompt):
                raise Refusal(400, "max_tokens must be at least 1, and fit into 128 with the prompt")
        choices = [self._choice(model, body, prompt, number) for number, prompt in enumerate(prompts)]
        if "logprobs" not in body:
            self.written.append(body)
        whole = {"id": "1", "object": "text_completion", "created": 1, "model": body["model"]}
        return whole | {"choices": choices}

    def _choice(self, model: Any, body: dict[str, Any], prompt: list[int], number: int) -> dict[str, Any]:
        ids, values, reason = [*prompt], [], "length"
        # One generator a request, as vLLM has it; its numbers are not vLLM's.
        drawn = torch.Generator().manual_seed(body.get("seed", 0))
        for _ in range(body["max_tokens"]):
            logits = _next(model, tuple(ids))
            raw = logits.log_softmax(-1)
            if allowed := body.get("allowed_token_ids"):
                logits = torch.full_like(logits, -torch.inf).index_fill(0, torch.tensor(allowed), 0.0)
            if body["temperature"] == 0:
                token = int(logits.argmax())
            else:
                top = logits.topk(body["top_k"] or len(logits))
                chances = (top.values / body["temperature"]).softmax(-1)
                token = int(top.indices[torch.multinomial(chances, 1, generator=drawn)])
            ids.append(token)
            values.append(float(raw[token]))
            if token in body.get("stop_token_ids", ()):
                reason = "stop"
                break
        new = ids[len(prompt) :]
        choice: dict[str, Any] = {"index": number, "text": "?", "finish_reason": reason, "logprobs": None}
        if body.get("return_token_ids"):
            choice["token_ids"] = new
        if body.get("logprobs") is not None:
            choice["logprobs"] = {
                "tokens": [""] * len(new), "token_logprobs": values, "top_logprobs": [{}] * len(new),
                "text_offset": [0] * len(new),
            }  # fmt: skip
        return choice


@contextmanager
def served(fake: FakeVLLM, port: int = 0) -> Iterator[str]:
    """The URL at which it answers while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._send(200, fake.metrics, "text/plain")
            else:
                self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            if fake.key and self.headers["Authorization"] != f"Bearer {fake.key}":
                self._send(401, json.dumps({"error": "Unauthorized"}), "application/json")
            elif fake.fault and self.path == "/v1/completions":
                self._fail(fake.fault)
            else:
                self._reply(body)

        def _fail(self, fault: str) -> None:
            if fault == "hang":
                fake.released.wait(20)
            if fault in {"hang", "cut"}:
                self.close_connection = True
                return
            status, text = (500, '{"error": {"message": "EngineCore encountered an issue."}}')
            self._send(
                status if fault == "500" else 200, text if fault == "500" else fault, "application/json"
            )

        def _reply(self, body: dict[str, Any]) -> None:
            try:
                found = fake.answer(self.path, body)
            except Refusal as error:
                reason = {"error": {"message": str(error), "code": error.status}}
                shown = reason if str(error) else {"detail": "Not Found"}
                self._send(error.status, json.dumps(shown), "application/json")
                return
            text = found if isinstance(found, str) else json.dumps(found)
            self._send(200, text, "text/plain" if isinstance(found, str) else "application/json")

        def _send(self, status: int, text: str, kind: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    class Listening(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            """A client that left."""

    server = Listening(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        fake.released.set()
        server.shutdown()
        server.server_close()
