"""A scripted OpenAI-compatible server for tests: python openai_script.py SCRIPT.json PORT_FILE REQUESTS.jsonl

SCRIPT is a list of answers, used in turn, the last one again and again: {"status", "text", "top", "raw", "delay"}.
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
        raw = step["raw"] if "raw" in step else json.dumps(_completion(step, body))
        self.send_response(step.get("status", 200))
        self.send_header("Content-Type", step.get("type", "application/json"))
        self.end_headers()
        self.wfile.write(raw.encode())

    def log_message(self, *_: Any) -> None:
        pass


def _completion(step: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    if step.get("status", 200) != 200:
        return {"error": {"message": step.get("text", "refused"), "type": "error"}}
    choice: dict[str, Any] = {
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": step["text"]}
    }  # fmt: skip
    if "top" in step and body.get("logprobs"):
        top = [{"token": token, "logprob": value, "bytes": None} for token, value in step["top"]]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
partial = Path(sys.argv[2] + ".partial")
partial.write_text(str(server.server_port), encoding="utf-8")
partial.rename(sys.argv[2])
server.serve_forever()
