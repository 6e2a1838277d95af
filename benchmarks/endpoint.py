"""`kcard serve` under load: many clients at once against one, questions that come once and questions that come again.

    python -m benchmarks.endpoint [--clients 32] [--seconds 120] [--busy N] [--json]

A home of its own gets an index of demo/corpora/nobel-prizes; the embedded LLM answers. The questions are made of its
passages. Loads, each with questions of its own:

    once     every question is another, so nothing comes out of the cache of answers
    again    questions are drawn by Zipf's law (exponent 1) out of 5,000, for which the cache, empty at first, has 1,000
             places
    direct   every question is another, and the LLM answers without cards
    busy     `once` with so many busy processes beside it (--busy)

The passages have been asked for before, so their embeddings are known. An answer is mixed up where its trace names
another question, or, for a sample, where one pipeline answers the same question otherwise. The clients use the same
cores, and torch takes all of them unless OMP_NUM_THREADS says otherwise. Reports questions a second, median and 95th
percentile; ends with status 1 after an error or a mix-up.
"""

import argparse
import http.client
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import kcard
from kcard.cards.format.folder import Card, passages
from kcard.evaluation.questions import about
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline

CORPUS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "nobel-prizes"
QUESTIONS = 200
POPULATION = 5000  # questions that come again
CHECKED = 100  # answers of a load that are compared with one pipeline's
SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


@dataclass(frozen=True)
class Load:
    """`p50`, `p95`: seconds of a question. `cached`: the share of answers that were there already."""

    name: str
    clients: int
    seconds: float
    answered: int
    rate: float
    p50: float
    p95: float
    cached: float
    errors: int
    mixed_up: int


@dataclass(frozen=True)
class Reply:
    question: str
    seconds: float
    status: int
    answer: str = ""
    traced: str = ""
    cached: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--seconds", type=float, default=120, help="of the many clients' `once`; the others get a quarter"
    )
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside one more load")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        kcard.train(CORPUS, kind="retrieval", name="prizes", output=home / "draft", exam=False)
        Hub(home).publish(home / "draft")
        asked, quarter = questions(home), args.seconds / 4
        loads: list[tuple[Load, list[Reply]]] = []
        with serving(home) as url:
            for question in asked:  # what is read first
                ask(connect(url), url, "embedded", question)

            def measure(name: str, clients: int, seconds: float, model: str = "embedded") -> None:
                draw = again(asked, name, clients) if name == "again" else once(asked, f"{name}{clients}")
                loads.append(load(name, url, model, clients, seconds, draw))

            measure("once", 1, quarter)
            measure("once", args.clients, args.seconds)
            measure("again", 1, quarter)
            measure("again", args.clients, quarter)
            measure("direct", args.clients, quarter, "embedded:direct")
            with busy(args.busy):
                if args.busy:
                    measure("busy", args.clients, quarter)
        found = [checked(home, *one) for one in loads]
    print(json.dumps([asdict(one) for one in found])) if args.json else show(found)
    if any(one.errors or one.mixed_up for one in found):
        sys.exit(1)


def questions(home: Path) -> list[str]:
    """About the card's passages."""
    card = Card.open(Hub(home).folder("prizes"))
    return [question.text for question in about(list(passages(card.folder)), QUESTIONS, 0)]


def once(asked: Sequence[str], seed: str) -> Iterator[str]:
    """Questions of which no two are equal: each names another who asks."""
    rng = Random(seed)
    for number in itertools.count():
        yield f"{rng.choice(asked)} Asked by {_name(seed)} {_name(number)}."


def again(asked: Sequence[str], name: str, clients: int) -> Iterator[str]:
    """Questions out of POPULATION, the one of rank r with a probability as 1 / r."""
    population = list(itertools.islice(once(asked, f"{name}{clients}"), POPULATION))
    weights = list(itertools.accumulate(1 / rank for rank in range(1, POPULATION + 1)))
    rng = Random(clients)
    while True:
        yield rng.choices(population, cum_weights=weights)[0]


def _name(of: object) -> str:
    """A name of its own for each number."""
    number = of if isinstance(of, int) else Random(str(of)).randrange(10**6)
    parts: list[str] = []
    while number or len(parts) < 2:
        number, at = divmod(number, len(SYLLABLES))
        parts.append(SYLLABLES[at])
    return "".join(parts).capitalize()


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


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that use a core each as far as they get one."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def load(
    name: str, url: str, model: str, clients: int, seconds: float, draw: Iterator[str]
) -> tuple[Load, list[Reply]]:
    """Let so many clients ask for so many seconds."""
    replies: list[Reply] = []
    lock = threading.Lock()
    begun = time.perf_counter()

    def work() -> None:
        connection = connect(url)
        while time.perf_counter() < begun + seconds:
            with lock:
                question = next(draw)
            replies.append(ask(connection, url, model, question))

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    times = sorted(reply.seconds for reply in replies)
    good = [reply for reply in replies if reply.status == 200]
    found = Load(
        name,
        clients,
        seconds,
        answered=len(good),
        rate=len(good) / took,
        p50=statistics.median(times),
        p95=times[len(times) * 95 // 100],
        cached=sum(reply.cached for reply in good) / max(len(good), 1),
        errors=len(replies) - len(good),
        mixed_up=sum(reply.traced != reply.question for reply in good),
    )
    return found, good


def connect(url: str) -> http.client.HTTPConnection:
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)


def ask(connection: http.client.HTTPConnection, url: str, model: str, question: str) -> Reply:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": question}]})
    path = f"{urllib.parse.urlsplit(url).path}/chat/completions"
    started = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content, seconds = response.read(), time.perf_counter() - started
    if response.status != 200:
        return Reply(question, seconds, response.status)
    found = json.loads(content)
    said, traced = found["choices"][0]["message"]["content"], found["kcard"]["question"]
    cached = response.headers.get("X-Kcard-Cache") == "hit"
    return Reply(question, seconds, response.status, said, traced, cached)


def checked(home: Path, found: Load, replies: Sequence[Reply]) -> Load:
    """With the answers counted that differ from what one pipeline gives to the question alone."""
    mode = "direct" if found.name == "direct" else "top-down"
    answer: Callable[[list[str]], list[kcard.Answer]] = Pipeline(hub=Hub(home), mode=mode)
    sample = Random(0).sample(replies, min(CHECKED, len(replies)))
    wrong = sum(answer([reply.question])[0].answer != reply.answer for reply in sample)
    return Load(**asdict(found) | {"mixed_up": found.mixed_up + wrong})


def show(found: Sequence[Load]) -> None:
    print("| load | clients | questions | a second | p50 s | p95 s | from the cache | errors | mixed up |")
    print("|---" * 9 + "|")
    for one in found:
        cells = [one.name, one.clients, one.answered, f"{one.rate:.1f}", f"{one.p50:.3f}", f"{one.p95:.3f}"]
        cells += [f"{one.cached:.0%}", one.errors, one.mixed_up]
        print("| " + " | ".join(map(str, cells)) + " |")
    rates = {(one.name, one.clients): one.rate for one in found}
    for (name, clients), rate in rates.items():
        if clients > 1 and (name, 1) in rates:
            print(f"{name}: {clients} clients {rate / rates[name, 1]:.1f} times one")
        if name == "busy":
            print(f"busy: {rate / rates['once', clients]:.2f} of `once`")


if __name__ == "__main__":
    main()
