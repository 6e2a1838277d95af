"""Cards on real manuals with real questions, trained and asked with default options.

    python -m benchmarks.real_documents --path DIR --fetch [--manual NAME ...] [--kind both retrieval model] [--json]

benchmarks/manuals/ lists eight manuals in Debian packages and an npm package, with 25 questions on each, written by
readers of the manuals independently of kcard; a fifth of them have no answer in the manual. `--fetch` downloads the
packages with apt-get and npm into DIR. A reply is right if it contains all phrases of an accepted answer; "I don't
know" is right for a question without an answer; any other reply is wrong.

For comparison: plain BM25 over chunks of 150 words, with the same embedded LLM reading the best three.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recipes.packages import Manual, fetch, manuals

from benchmarks.kinds import KINDS, Kind, hub_with
from kcard.index import Index
from kcard.integrators.pipeline import Pipeline
from kcard.llms.embedded_llm import UNKNOWN_ANSWER, EmbeddedLLM
from kcard.llms.parsing import from_text
from kcard.training.corpus import read_corpus
from kcard.types import Request

MANUALS = Path(__file__).parent / "manuals"
CHUNK = 150  # words
UNANSWERABLE = "unanswerable"


@dataclass(frozen=True)
class ManualQuestion:
    """`gold`: alternatives, of which each is a list of phrases that must all occur; none where nothing is right."""

    manual: str
    type: str
    question: str
    gold: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """`verdict`: right, wrong or unknown."""

    kind: str
    manual: str
    type: str
    question: str
    answer: str
    verdict: str
    confidence: float | None
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="where the packages are, or go")
    parser.add_argument("--fetch", action="store_true", help="download the packages first")
    parser.add_argument(
        "--manuals", type=Path, default=MANUALS, help="a folder with manuals.toml and questions"
    )
    parser.add_argument("--manual", nargs="+", help="only these")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--home", type=Path, help="keep the cards here, and use those that are there")
    parser.add_argument("--worst", type=int, default=5, help="wrong answers that are shown, the surest first")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    listed = manuals(args.manuals / "manuals.toml")
    chosen = {name: listed[name] for name in args.manual or listed}
    if args.fetch:
        for manual in chosen.values():
            fetch(manual, args.path)
    with tempfile.TemporaryDirectory() as scratch:
        home = args.home or Path(scratch)
        outcomes: list[Outcome] = []
        for name, manual in chosen.items():
            sample = questions(args.manuals / f"{name}.jsonl", name)
            corpus = gathered(manual, args.path, Path(scratch) / "corpora" / name)
            outcomes += baseline(corpus, sample)
            for kind in args.kind:
                outcomes += asked_of_card(name, kind, corpus, sample, home)
                print(
                    f"{name}, {kind}: {_counts(o for o in outcomes if (o.kind, o.manual) == (kind, name))}",
                    file=sys.stderr,
                )
    print(
        json.dumps([asdict(outcome) for outcome in outcomes]) if args.json else report(outcomes, args.worst)
    )


def questions(path: Path, manual: str) -> list[ManualQuestion]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [ManualQuestion(manual, r["type"], r["question"], tuple(map(tuple, r["gold"]))) for r in rows]


def gathered(manual: Manual, packages: Path, target: Path) -> Path:
    """The manual's files in a folder of their own."""
    root = packages / manual.package
    for file in manual.listed(packages):
        place = target / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    return target


def asked_of_card(
    name: str, kind: Kind, corpus: Path, sample: Sequence[ManualQuestion], home: Path
) -> list[Outcome]:
    """What a card of this kind answers, at the defaults of training and asking."""
    pipeline = Pipeline(hub=hub_with(kind, corpus, name, home))
    outcomes = []
    for question in sample:
        begun = time.perf_counter()
        answer = pipeline([question.question])[0]
        outcomes.append(
            _outcome(question, kind, answer.answer, answer.confidence, time.perf_counter() - begun)
        )
    return outcomes


def baseline(corpus: Path, sample: Sequence[ManualQuestion]) -> list[Outcome]:
    """Chunks of 150 words, the best three by BM25, read by the embedded LLM."""
    chunks = [text for text, _ in chunks_of(corpus)]
    index, llm = Index.build(chunks), EmbeddedLLM()
    outcomes = []
    for question in sample:
        begun = time.perf_counter()
        best = tuple(chunks[row] for row, _ in index.search(question.question, 3))
        reply = llm.reply(Request("answer", question.question, best))
        outcomes.append(_outcome(question, "bm25", reply.text, reply.confidence, time.perf_counter() - begun))
    return outcomes


def chunks_of(corpus: Path) -> list[tuple[str, list[str]]]:
    """The corpus in chunks of 150 words, which may cross headings, each with the headings that its words are under."""
    words: list[tuple[str, str]] = []
    for passage in read_corpus(corpus).passages:
        words += [(word, passage.section) for word in passage.text.split()]
    chunks = [words[start : start + CHUNK] for start in range(0, len(words), CHUNK)]
    return [
        (" ".join(word for word, _ in chunk), list(dict.fromkeys(heading for _, heading in chunk)))
        for chunk in chunks
    ]


def _outcome(
    question: ManualQuestion, kind: str, answer: str, confidence: float | None, seconds: float
) -> Outcome:
    verdict = verdict_of(answer, question.gold)
    return Outcome(
        kind,
        question.manual,
        question.type,
        question.question,
        answer,
        verdict,
        confidence,
        round(seconds, 3),
    )


def verdict_of(answer: str, gold: Sequence[Sequence[str]]) -> str:
    """right, wrong or unknown; see above. What is unknown is right where there is no answer. Of yes or no, the reply's
    first word decides; a quotation says neither."""
    if answer == UNKNOWN_ANSWER:
        return "unknown" if gold else "right"
    if [*gold] in ([("yes",)], [("no",)], [["yes"]], [["no"]]):
        says_yes = from_text(answer)
        if says_yes is None:
            return "unknown"
        return "right" if says_yes == float(gold[0][0] == "yes") else "wrong"
    text = _plain(answer)
    return "right" if any(all(_plain(phrase) in text for phrase in phrases) for phrases in gold) else "wrong"


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").replace("‘", "'").split())


def report(outcomes: Sequence[Outcome], worst: int) -> str:
    lines = []
    for title, key in (("manual", lambda o: o.manual), ("type", lambda o: o.type)):
        lines += ["", *_table(outcomes, title, key)]
    for kind in dict.fromkeys(o.kind for o in outcomes):
        wrong = sorted(
            (o for o in outcomes if o.kind == kind and o.verdict == "wrong"),
            key=lambda o: -(o.confidence or 0),
        )
        lines += ["", f"Worst of {kind}:"]
        lines += [
            f"- {o.manual}: {o.question!r} -> {o.answer[:160]!r} ({o.confidence or 0:.2f})"
            for o in wrong[:worst]
        ]
    return "\n".join(lines[1:])


def _table(outcomes: Sequence[Outcome], title: str, key: Any) -> list[str]:
    """right / wrong / don't know of the answerable, and of the unanswerable what was admitted."""
    kinds = list(dict.fromkeys(o.kind for o in outcomes))
    rows: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for o in outcomes:
        rows[key(o)][o.kind].append(o)
        rows["all"][o.kind].append(o)
    lines = [f"| {title} | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    ordered = [name for name in rows if name != "all"] + ["all"]
    return lines + [
        f"| {name} | " + " | ".join(_counts(rows[name][kind]) for kind in kinds) + " |" for name in ordered
    ]


def _counts(outcomes: Iterable[Outcome]) -> str:
    """Of the answerable: right / wrong / unknown; of the unanswerable: admitted."""
    outcomes = list(outcomes)
    counted = Counter(o.verdict for o in outcomes if o.type != UNANSWERABLE)
    without = [o for o in outcomes if o.type == UNANSWERABLE]
    figures = f"{counted['right']}/{counted['wrong']}/{counted['unknown']}" if counted else ""
    admitted = f"{sum(o.verdict == 'right' for o in without)} of {len(without)} admitted" if without else ""
    return ", ".join(part for part in (figures, admitted) if part)


if __name__ == "__main__":
    main()
