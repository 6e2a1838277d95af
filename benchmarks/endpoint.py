"""`kcard serve` under load: many clients at once against one, and against the LLM without cards.

    python -m benchmarks.endpoint [--clients 32] [--seconds 120] [--json]

A home of its own gets an index of demo/corpora/nobel-prizes; the embedded LLM answers. The questions are made of its
passages, and every client asks them in an order of its own. An answer that differs from what one pipeline gives to
the same question is a mix-up. Reports questions a second, median and 95th percentile; ends with status 1 after an error
or a mix-up.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import httpx

import kcard
from kcard.cards.format.folder import Card, passages
from kcard.evaluation.questions import about
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline

CORPUS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "nobel-prizes"
QUESTIONS = 200


@dataclass(frozen=True)
class Load:
    """`p50`, `p95`: seconds of a question."""

    model: str
    clients: int
    answered: int
    rate: float
    p50: float
    p95: float
    errors: int
    mixed_up: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--seconds", type=float, default=120, help="of the many clients; the others get a quarter"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        kcard.train(CORPUS, kind="retrieval", name="prizes", output=home / "draft", exam=False)
        Hub(home).publish(home / "draft")
        expected = answers(home)
        with serving(home) as url:
            asked = list(expected)
            load(url, "embedded", 1, 5, asked, expected)  # what is loaded first
            found = [
                load(url, "embedded", 1, args.seconds / 4, asked, expected),
                load(url, "embedded", args.clients, args.seconds, asked, expected),
                load(url, "embedded:direct", args.clients, args.seconds / 4, asked, {}),
            ]
    if args.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        show(found)
    if any(one.errors or one.mixed_up for one in found):
        sys.exit(1)


def answers(home: Path) -> dict[str, str]:
    """Questions about the card's passages, and what one pipeline answers to each alone."""
    card = Card.open(Hub(home).folder("prizes"))
    asked = [question.text for question in about(list(passages(card.folder)), QUESTIONS, 0)]
    pipeline = Pipeline(hub=Hub(home))
    return {question: pipeline([question])[0].answer for question in asked}


@contextmanager
def serving(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "kcard", "serve", "--port", "0"]
    environment = os.environ | {"KCARD_HOME": str(home)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("serving on ").strip()
        finally:
            process.send_signal(signal.SIGINT)


def load(
    url: str, model: str, clients: int, seconds: float, asked: Sequence[str], expected: Mapping[str, str]
) -> Load:
    """Let so many clients ask for so many seconds."""
    times: list[float] = []
    errors, mixed_up = [], []
    deadline = time.perf_counter() + seconds

    def work(number: int) -> None:
        order = Random(number).sample(asked, len(asked))
        with httpx.Client(timeout=120) as client:
            for question in order * 1000:
                started = time.perf_counter()
                if started > deadline:
                    return
                body = {"model": model, "messages": [{"role": "user", "content": question}]}
                reply = client.post(f"{url}/chat/completions", json=body)
                times.append(time.perf_counter() - started)
                if reply.status_code != 200:
                    errors.append(reply.text)
                elif reply.json()["choices"][0]["message"]["content"] != expected.get(
                    question, reply_of(reply)
                ):
                    mixed_up.append(question)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = len(times) / (time.perf_counter() - begun)
    p95 = sorted(times)[len(times) * 95 // 100]
    return Load(model, clients, len(times), rate, statistics.median(times), p95, len(errors), len(mixed_up))


def reply_of(reply: httpx.Response) -> str:
    return str(reply.json()["choices"][0]["message"]["content"])


def show(found: Sequence[Load]) -> None:
    print("| model | clients | questions | a second | p50 s | p95 s | errors | mixed up |")
    print("|---" * 8 + "|")
    for one in found:
        cells = (
            f"{one.answered} | {one.rate:.1f} | {one.p50:.3f} | {one.p95:.3f} | {one.errors} | {one.mixed_up}"
        )
        print(f"| {one.model} | {one.clients} | {cells} |")


if __name__ == "__main__":
    main()
