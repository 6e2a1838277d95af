"""Latency of `ask` in a warm process: gate, cards, selectors and reader.

    python -m benchmarks.ask_latency --home HOME [--questions 100] [--threads 2] [--modes bottom-up,top-down] [--json]

HOME contains published cards with their passages (demo/run.py creates one; an index of a corpus works too). Questions
are made from these passages, in forms that no card was trained on, and each is asked once, without cached results.
Prints medians and 95th percentiles for one question at a time, in total and by stage; for batches, as in `ask --input`;
and for one cold `kcard ask`.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcard.integrators.options import Mode
    from kcard.integrators.pipeline import Pipeline

STAGES = ("gate", "choice", "cards", "relevance", "pruning", "evidence", "factuality", "reader", "rest")
KINDS = {"need": "gate", "what": "choice", "choose": "choice", "answer": "reader"}


class Stopwatch:
    """Seconds by stage. Of a stage within a stage only the inner one counts."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def wrap(self, owner: Any, name: str, stage: "str | Callable[..., str]") -> None:
        """Time a method of a class, or of an object that lets itself be changed."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def timed(*args: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            started = time.perf_counter()
            try:
                return method(*args, **named)
            finally:
                spent = time.perf_counter() - started
                label = stage if isinstance(stage, str) else stage(*args, **named)
                self.seconds[label] += spent - self._inner.pop()
                self._inner[-1] += spent

        setattr(owner, name, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--cards", help="as --cards of kcard ask; default: all")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", default="bottom-up,top-down")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ |= {"KCARD_HOME": str(args.home.resolve()), "KCARD_CACHE_MB": "0", "HF_HUB_OFFLINE": "1"}
    import torch

    torch.set_num_threads(args.threads)
    cards = args.cards.split(",") if args.cards else None
    sample = questions(cards, args.questions, args.seed)
    report: dict[str, Any] = {"questions": len(sample), "threads": args.threads, "modes": {}}
    for mode in args.modes.split(","):
        report["modes"][mode] = measured(mode, cards, sample)
    report["cold_s"] = cold(sample[0], args.cards)
    print(json.dumps(report) if args.json else table(report))


def questions(cards: Sequence[str] | None, count: int, seed: int) -> list[str]:
    """Questions about passages of the cards, drawn from each of them in turn."""
    from kcard.cards.passages import passages
    from kcard.hub.registry import Hub
    from kcard.training.embedded.pseudo_queries import held_out

    hub, rng = Hub(), Random(seed)
    folders = [hub.folder(version.reference) for version in hub.select(cards).versions]
    distinct: dict[str, None] = {}
    for folder in folders:
        texts = passages(folder)
        drawn = rng.sample(range(len(texts)), min(len(texts), 4 * count // len(folders) + 4))
        candidates = [question.text for i in drawn if (question := held_out(texts[i].text, seed)) is not None]
        distinct |= dict.fromkeys(candidates[: -(-count // len(folders))])
    sample = list(distinct)
    rng.shuffle(sample)
    return sample[:count]


def measured(mode: "Mode", cards: Sequence[str] | None, sample: Sequence[str]) -> dict[str, Any]:
    from kcard.integrators.pipeline import Pipeline

    def make_pipeline() -> Pipeline:
        pipeline = Pipeline(mode=mode, cards=cards, gate="self-ask")
        pipeline(["Who wrote the oldest of all letters?"])
        return pipeline

    batched, answers_batched = by_file(make_pipeline(), sample)
    single = make_pipeline()
    watch = stopwatch(single)
    rows, answers = [], []
    for question in sample:
        watch.seconds.clear()
        started = time.perf_counter()
        answers.append(single([question])[0].answer)
        seconds = time.perf_counter() - started
        rows.append({**watch.seconds, "rest": seconds - sum(watch.seconds.values()), "all": seconds})
    alone = [row["all"] for row in rows]
    return {
        "median_s": round(statistics.median(alone), 4),
        "p95_s": round(sorted(alone)[int(0.95 * len(alone))], 4),
        "mean_s_by_stage": {s: round(statistics.fmean(row.get(s, 0.0) for row in rows), 4) for s in STAGES},
        "questions_per_second": {
            "one at a time": round(len(sample) / sum(alone), 2),
            "ask --input": round(len(sample) / batched, 2),
        },
        "same_answers": sum(a == b for a, b in zip(answers, answers_batched, strict=True)),
    }


def stopwatch(pipeline: "Pipeline") -> Stopwatch:
    """On everything that takes time, in the order in which a question meets it."""
    watch = Stopwatch()
    integrator: Any = pipeline._integrator
    selectors = integrator.selectors
    watch.wrap(pipeline._client, "reply", lambda request: KINDS.get(request.kind, "reader"))
    watch.wrap(pipeline._pool, "generate", "cards")
    for kind, name, stage in (
        (type(selectors.relevance), "scores", "relevance"),
        (type(selectors.pruner), "prune", "pruning"),
        (type(selectors.checker), "judge", "factuality"),
        (type(selectors.checker), "support", "factuality"),
    ):
        watch.wrap(kind, name, stage)
    from kcard.integrators.card_ranking import CardRanker
    from kcard.llms.embedded_llm import SpanReader
    from kcard.selectors.evidence import CorpusEvidence

    watch.wrap(CardRanker, "__call__", "choice")
    watch.wrap(CorpusEvidence, "find", "evidence")
    watch.wrap(SpanReader, "extract", "reader")
    return watch


def by_file(pipeline: "Pipeline", sample: Sequence[str]) -> tuple[float, list[str]]:
    """Seconds of `ask --input` over all questions, and the answers."""
    from kcard.integrators.batch_files import answer_file

    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "answers.jsonl"
        started = time.perf_counter()
        answer_file([{"question": question} for question in sample], output, pipeline.outcomes)
        seconds = time.perf_counter() - started
        return seconds, [json.loads(line)["answer"] for line in output.read_text("utf-8").splitlines()]


def cold(question: str, cards: str | None) -> float:
    """Seconds of one process, its files being in memory from a run before."""
    command = [sys.executable, "-m", "kcard", "ask", question, *(["--cards", cards] if cards else [])]
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - started
    return round(seconds, 3)


def table(report: dict[str, Any]) -> str:
    modes = report["modes"]
    lines = [
        f"{report['questions']} questions, {report['threads']} threads; one cold kcard ask: {report['cold_s']:.2f} s",
        "",
        f"| | {' | '.join(modes)} |",
        "|---" * (len(modes) + 1) + "|",
    ]
    for name, key in (("median, s", "median_s"), ("p95, s", "p95_s")):
        values = (f"{m[key]:.3f}" for m in modes.values())
        lines.append(f"| {name} | {' | '.join(values)} |")
    for how in ("one at a time", "ask --input"):
        rates = (f"{m['questions_per_second'][how]:.2f}" for m in modes.values())
        lines.append(f"| questions a second, {how} | {' | '.join(rates)} |")
    alike = (f"{m['same_answers']} of {report['questions']}" for m in modes.values())
    lines.append(f"| same answers in both | {' | '.join(alike)} |")
    for stage in STAGES:
        spent = [m["mean_s_by_stage"] for m in modes.values()]
        shares = (f"{mean[stage]:.3f} ({mean[stage] / sum(mean.values()):.0%})" for mean in spent)
        lines.append(f"| mean s in {stage} | {' | '.join(shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
