"""Seconds for questions asked one at a time and several at a time: an endpoint with a latency, and a local model.

    python -m benchmarks.concurrency [--questions 32] [--latency 0.2] [--model FOLDER] [--json]

The endpoint is a process on this machine that answers every request after `--latency` seconds, any number of them at a
time. `--model` is a model of transformers, as a folder or a name; without it, only the endpoint is measured.
"""

import argparse
import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from kcard.integrators.pipeline import Pipeline

ENDPOINT, LOCAL = (1, 4, 8, 16), (1, 4, 16)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    latency = 0.0

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.latency)
        said = {"role": "assistant", "content": asked["messages"][-1]["content"].splitlines()[0]}
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(latency: float, told: Connection) -> None:
    Handler.latency = latency
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.send(server.server_port)
    server.serve_forever()


def seconds(questions: list[str], **options: Any) -> tuple[float, list[str]]:
    """How long the answers took, and the answers; models are loaded before."""
    pipeline = Pipeline(mode="direct", **options)
    started = time.perf_counter()
    answers = [answer.answer for answer in pipeline(questions)]
    return time.perf_counter() - started, answers


def measured(questions: list[str], counts: tuple[int, ...], **options: Any) -> dict[str, Any]:
    runs = {count: seconds(questions, concurrency=count, **options) for count in counts}
    alike = all(answers == runs[counts[0]][1] for _, answers in runs.values())
    return {"seconds": {count: round(taken, 2) for count, (taken, _) in runs.items()}, "same answers": alike}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds a request")
    parser.add_argument("--model", help="a model of transformers: a folder or a name")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    questions = [f"Who won race number {number}?" for number in range(args.questions)]
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(args.latency, theirs), daemon=True
    )
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/v1"
    found = {"endpoint": measured(questions, ENDPOINT, llm="openai:m", llm_url=url)}
    server.terminate()
    if args.model:
        from kcard.llms.local import LocalLLM

        found["hf"] = measured(questions, LOCAL, llm=LocalLLM(args.model, temperature=0, max_tokens=32))
    print(json.dumps(found) if args.json else "\n".join(f"{name}: {told}" for name, told in found.items()))


if __name__ == "__main__":
    main()
