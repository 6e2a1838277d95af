"""A scripted OpenAI-compatible server, in a thread of the tests: ScriptedServer(steps).start().

As a process of its own: python openai_script.py SCRIPT.json PORT_FILE [PORT]. Its steps, the list in SCRIPT, are
answers, used in turn, the last one again and again:

    status, text, top      status, text and likeliest first tokens of a completion
    tokens                 instead of top, the likeliest tokens at each of its places
    usage                  [tokens in, tokens out]
    finish                 why the completion ended, instead of "stop"
    pieces                 the text as a client that streams gets it
    raw, type, headers     a body, its content type and headers of its own
    delay                  seconds before the answer
    cut                    bytes of the body (pieces, of a stream) after which the connection is closed

Of every request the path, the key, the accepted encoding and the body are kept in `requests`.
"""

import json
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class ScriptedServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 from the start; `port` 0: any free one."""

    def __init__(self, steps: Sequence[dict[str, Any]], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.steps, self.requests = list(steps), list[dict[str, Any]]()
        self.ended = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def start(self) -> "ScriptedServer":
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def kill(self) -> None:
        """End at once: nobody is answered any more, and no connection is accepted."""
        self.ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go whenever they like."""


class GetServers:
    """Starts servers that answer every GET with a status and a body. `requests`: the paths that they were asked for."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._running: list[ThreadingHTTPServer] = []

    def __call__(self, status: int, body: str) -> str:
        """Start one, and return its URL."""
        requests = self.requests

        class GetHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), GetHandler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self._running.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1"

    def close(self) -> None:
        for server in self._running:
            server.shutdown()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {"key": self.headers.get("Authorization"), "encoding": self.headers.get("Accept-Encoding")}
        told = {"path": self.path, **headers, "body": body}
        self.server.requests.append(told)
        steps = self.server.steps
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if self.server.ended.wait(step.get("delay", 0)):
            return
        if body.get("stream") and "raw" not in step and step.get("status", 200) == 200:
            self._send(step, "text/event-stream", _events(step, body))
            return
        completion = _completion if "messages" in body else _plain_completion
        raw = step["raw"] if "raw" in step else json.dumps(completion(step, body))
        self._send(step, step.get("type", "application/json"), raw, step.get("cut"))

    def _send(self, step: dict[str, Any], kind: str, raw: str, cut: int | None = None) -> None:
        self.send_response(step.get("status", 200))
        self.send_header("Content-Type", kind)
        if cut is not None:
            self.send_header("Content-Length", str(len(raw.encode())))
        for name, value in step.get("headers", {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw.encode()[:cut])

    def log_message(self, *_: Any) -> None:
        pass


def _completion(step: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    if step.get("status", 200) != 200:
        return {"error": {"message": step.get("text", "refused"), "type": "error"}}
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": step.get("finish", "stop"),
        "message": {"role": "assistant", "content": step["text"]},
    }
    places = step.get("tokens") or ([step["top"]] if "top" in step else None)
    if places is not None and body.get("logprobs"):
        tops = [[{"token": t, "logprob": value, "bytes": None} for t, value in place] for place in places]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top} for top in tops]}
    whole = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
    return {**whole, "choices": [choice], **_usage(step)}


def _plain_completion(step: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    if step.get("status", 200) != 200:
        return {"error": {"message": step.get("text", "refused"), "type": "error"}}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "text": step["text"]}
    places = step.get("tokens") or ([step["top"]] if "top" in step else None)
    if places is not None and body.get("logprobs"):
        choice["logprobs"] = {
            "tokens": [place[0][0] for place in places],
            "token_logprobs": [place[0][1] for place in places],
            "top_logprobs": [dict(place) for place in places],
            "text_offset": [0] * len(places),
        }
    whole = {"id": "1", "object": "text_completion", "created": 0, "model": body["model"]}
    count = len(body["prompt"]) if isinstance(body["prompt"], list) else 1
    return {**whole, "choices": [{**choice, "index": at} for at in range(count)], **_usage(step)}


def _events(step: dict[str, Any], body: dict[str, Any]) -> str:
    pieces: list[str] = step.get("pieces", [step.get("text", "")])
    held, chat = pieces[: step.get("cut")], "messages" in body
    count = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": at, "finish_reason": None, **_piece(piece, chat)}]}
        for piece in held
        for at in range(count)
    ]
    if len(held) == len(pieces):
        ends = (
            {"index": at, "finish_reason": step.get("finish", "stop"), **_piece("", chat)}
            for at in range(count)
        )
        chunks += [{"choices": [end]} for end in ends]
        chunks.append({"choices": [], **_usage(step)})
    whole = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    lines = [f"data: {json.dumps({**whole, **chunk})}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if len(held) == len(pieces) else ""])


def _piece(text: str, chat: bool) -> dict[str, Any]:
    return {"delta": {"content": text}} if chat else {"text": text}


def _usage(step: dict[str, Any]) -> dict[str, Any]:
    if "usage" not in step:
        return {}
    read, wrote = step["usage"]
    return {"usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}}


if __name__ == "__main__":
    script, port_file, *port = sys.argv[1:]
    server = ScriptedServer(json.loads(Path(script).read_text(encoding="utf-8")), *map(int, port))
    partial = Path(port_file + ".partial")
    partial.write_text(str(server.server_port), encoding="utf-8")
    partial.rename(port_file)
    server.serve_forever()
