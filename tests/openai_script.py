"""A scripted OpenAI-compatible server for tests: python openai_script.py SCRIPT.json PORT_FILE REQUESTS.jsonl [PORT]

SCRIPT is a list of answers, used in turn, the last one again and again:

    status, text, top      status, text and likeliest first tokens of a completion
    tokens                 instead of top, the likeliest tokens at each of its places
    usage                  [tokens in, tokens out]
    finish                 why the completion ended, instead of "stop"
    pieces                 the text as a client that streams gets it
    raw, type, headers     a body, its content type and headers of its own
    delay                  seconds before the answer
    cut                    bytes of the body (pieces, of a stream) after which the connection is closed

Every request's path, headers and body are appended to REQUESTS.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCRIPT: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
REQUESTS = Path(sys.argv[3])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = {"path": self.path, "key": self.headers.get("Authorization"), "body": body}
        with REQUESTS.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(told) + "\n")
        step = SCRIPT.pop(0) if len(SCRIPT) > 1 else SCRIPT[0]
        time.sleep(step.get("delay", 0))
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
        ends = ({"index": at, "finish_reason": "stop", **_piece("", chat)} for at in range(count))
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


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[4]) if len(sys.argv) > 4 else 0), Handler)
partial = Path(sys.argv[2] + ".partial")
partial.write_text(str(server.server_port), encoding="utf-8")
partial.rename(sys.argv[2])
server.serve_forever()
