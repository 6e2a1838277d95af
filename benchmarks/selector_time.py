"""How long the selectors take over one question, and which of them: 75 documents, 25 cards x 3.

    python -m benchmarks.selector_time [--questions N] [--sentences N] [--threads N] [--remembered] [--json]

The files of demo/corpora are split among 25 cards. A card's documents for a question are the three places of its text
nearest to the question, read on for `--sentences` sentences, each of which is reworded at its start: none stands in the
evidence, the card's own text, word for word, so the checker reads all. Nothing is remembered from earlier questions
unless `--remembered` asks all of them a second time.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kcard.answer import Passage, Source
from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.selectors import Selectors
from kcard.protocols import Array, Checker, Evidence, Pair, Pruner, Relevance
from kcard.request import Choice
from kcard.sampling import Sampling
from kcard.selectors.cached import cached
from kcard.selectors.evidence.sources import CorpusEvidence
from kcard.selectors.presets import DEFAULT
from kcard.selectors.presets import SelectorChoice as Preset
from kcard.selectors.registry import Loading

DEMO = Path(__file__).resolve().parents[1] / "demo"
CARDS, DOCUMENTS = 25, 3
STEPS = ("relevance", "pruning", "evidence search", "factuality", "draw and rest")


@dataclass
class Clock:
    """Seconds of each step of one question."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started


@dataclass(frozen=True)
class Timed:
    """The selectors, with the time of each taken."""

    clock: Clock
    relevance: Relevance
    pruner: Pruner
    checker: Checker

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        with self.clock.step("relevance"):
            return self.relevance.scores(question, texts)

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        with self.clock.step("pruning"):
            return self.pruner.prune(question, texts)

    def support(self, pairs: Sequence[Pair]) -> Array:
        with self.clock.step("factuality"):
            return self.checker.support(pairs)


@dataclass(frozen=True)
class TimedEvidence:
    clock: Clock
    evidence: Evidence

    def find(self, claim: str, k: int) -> list[Source]:
        with self.clock.step("evidence search"):
            return self.evidence.find(claim, k)


@dataclass(frozen=True)
class Written:
    """A pool whose documents are there already, so that no time of a card is counted."""

    documents: Mapping[str, Sequence[Passage]]
    cards: Sequence[Choice]

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        del cards, documents, sampling
        return [list(self.documents[question]) for question in questions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--sentences", type=int, default=1, help="length of a document")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--selectors", default=DEFAULT, help="a preset")
    parser.add_argument(
        "--remembered", action="store_true", help="with the cache: ask twice, time the second"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as home:
        os.environ["KCARD_HOME"] = home
        if not args.remembered:
            os.environ["KCARD_CACHE_MB"] = "0"
        report = measure(args.questions, args.sentences, args.selectors, args.remembered)
    report |= {"threads": args.threads, "remembered": args.remembered}
    print(json.dumps(report) if args.json else table(report))


def measure(count: int, sentences: int, preset: str, remembered: bool) -> dict[str, Any]:
    texts = cards()
    corpora = {name: CorpusEvidence(sources, name) for name, sources in texts.items()}
    questions = [row["question"] for row in _rows(DEMO / "questions.jsonl")][:count]
    documents = {
        q: [p for name in texts for p in written(q, name, texts[name], corpora[name], sentences)]
        for q in questions
    }
    clock, choice, loading = Clock(), Preset(preset), Loading()
    timed = Timed(
        clock,
        choice.make_relevance(loading),
        choice.make_pruner(loading),
        cached(choice.make_checker(loading)),
    )
    evidence = {name: TimedEvidence(clock, corpus) for name, corpus in corpora.items()}
    run = BottomUp(
        Written(documents, [Choice(name, name) for name in corpora]),
        Selectors(timed, timed, timed, evidence),
        Sampling(),
        n1=DOCUMENTS,
    )
    run.gather(questions[:1])  # which loads the models
    rows = [one(run, clock, q) for _ in range(1 + remembered) for q in questions][-len(questions) :]
    return {
        "questions": len(questions),
        "documents": statistics.median(len(documents[q]) for q in questions),
        "words": float(np.mean([len(p.text.split()) for q in questions for p in documents[q]])),
        "median": {step: statistics.median(row[step] for row in rows) for step in (*STEPS, "all", "CPU")},
        "slowest": max(row["all"] for row in rows),
    }


def one(run: BottomUp, clock: Clock, question: str) -> dict[str, float]:
    """Seconds of each step of one question, of all of them, and of the processor."""
    clock.seconds.clear()
    started, worked = time.perf_counter(), time.process_time()
    run.gather([question])
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    steps = {step: clock.seconds[step] for step in STEPS}
    return steps | {"draw and rest": seconds - sum(clock.seconds.values()), "all": seconds, "CPU": cpu}


def cards() -> dict[str, list[Source]]:
    """25 cards: the corpora, the largest cut in two until there are enough."""
    found = {file.stem: _lines(file) for file in sorted((DEMO / "corpora").glob("*/*.txt"))}
    while len(found) < CARDS:
        name = max(found, key=lambda n: len(found[n]))
        half = len(found[name]) // 2
        found |= {f"{name}-{len(found)}": found[name][half:], name: found[name][:half]}
    return found


def written(
    question: str, name: str, sources: Sequence[Source], corpus: CorpusEvidence, sentences: int
) -> list[Passage]:
    """The three places of a card's text that are nearest to the question, each read on for some sentences."""
    found = [sources.index(replace(source, score=0.0)) for source in corpus.find(question, DOCUMENTS)]
    places = list(dict.fromkeys([*found, *range(DOCUMENTS)]))[:DOCUMENTS]
    told = [[f"It is said: {s.text}" for s in sources[place : place + sentences]] for place in places]
    return [Passage(name, " ".join(group)) for group in told]


def table(report: dict[str, Any]) -> str:
    total = report["median"]["all"]
    lines = [
        f"{report['questions']} questions, {report['documents']:.0f} documents of {report['words']:.0f} words each, "
        f"{report['threads']} threads, {'remembered' if report['remembered'] else 'nothing remembered'}; "
        f"slowest question {report['slowest']:.2f} s; processor time {report['median'].pop('CPU'):.2f} s",
        "",
        "| step | median s | share |",
        "|---|---|---|",
    ]
    return "\n".join(
        lines + [f"| {step} | {s:.3f} | {s / total:.0%} |" for step, s in report["median"].items()]
    )


def _lines(file: Path) -> list[Source]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Source(line.strip(), file.name, number) for number, line in enumerate(lines, 1) if line.strip()]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
