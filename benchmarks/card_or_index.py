"""Does a model help if its text is available? A card's model, an index of the same statements, and both together.

    python -m benchmarks.card_or_index --midterm MidtermQA-openbook.json [--wikidyk wikidyk-dev.json] [--missing 0.5]

A card of kind `both` is trained on each set. The model alone is that card without its index, the index alone a
retrieval card of the same statements, and `bm25` the index without the sentence encoder. All answer through the
pipeline with the embedded reader. MidtermQA's questions are asked verbatim and in four rewordings, which share fewer
and fewer words with the statements. Words in common: the share of a question's words, without function words, that
occur in the nearest statement with the answer. With --missing, that share of the facts is asked again after all
passages with the answer are deleted from the indexes; the model was trained on them.

"both - index" is the difference in exact match with its 95 % interval (paired bootstrap), the number of questions that
only one of them answers, and McNemar's p.
"""

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.prompt_styles import stated
from benchmarks.recall import Question, holds, rows, share
from benchmarks.xquad import learn, renamed
from kcard.cards.card import Card, finish
from kcard.cards.passages import passages
from kcard.evaluation.metrics import compare_scores, exact_match
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline
from kcard.llms.embedded_llm import UNKNOWN_ANSWER
from kcard.text import words
from kcard.types import Answer

MIDTERMS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "midterms-2022"
MODES: dict[str, dict[str, Any]] = {
    "top-down": {"mode": "top-down", "gate": "always"},
    "bottom-up": {"mode": "bottom-up", "gate": "always"},
}
SMALL = frozenset(
    words("a an and as at by did do does for from had has have in is it of on or that the to was were with")
)
ASKING = frozenset(words("who whom whose what which when where why how"))
BINS = (("all to 3/4", 0.75), ("3/4 to 1/2", 0.5), ("under 1/2", 0.0))
BATCH = 64

RACE = re.compile(
    r"Who won the (?:(?P<seat>at-large|\d+\w\w) congressional district|(?P<office>senate|governor) race) "
    r"of (?P<state>.+) in the 2022 U\.S\. midterm elections\?"
)
FORMS = {
    "as it is": None,
    "moved": "In the 2022 midterm elections, in {state}, who took {race}?",
    "other verb": "Which politician was elected for {race} of {state} in 2022?",
    "other words": "Name the victor of the November 2022 vote on {seat} in {state}.",
    "heavy paraphrase": "Whom did {state} pick for {described} when Joe Biden was halfway through his term?",
}
UNITS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")


@dataclass(frozen=True)
class FormQuestion:
    """A question in one form; `common`: its words in common with the nearest statement that holds the answer."""

    form: str
    question: Question
    common: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--midterm", type=Path, help="MidtermQA-openbook.json")
    parser.add_argument("--wikidyk", type=Path, help="wikidyk-dev.json, of which 300 facts are used")
    parser.add_argument(
        "--midterm-card", type=Path, help="a card trained before on demo/corpora/midterms-2022"
    )
    parser.add_argument("--wikidyk-card", type=Path, help="a card trained before on those facts")
    parser.add_argument("--mode", choices=list(MODES), default="top-down")
    parser.add_argument("--every", type=int, default=1, help="ask every Nth question only")
    parser.add_argument(
        "--missing", type=float, default=0.0, help="share of facts to ask again without their passages"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        if args.midterm is not None:
            pairs = midterm(args.midterm, args.every)
            reports.append(compare("midterm", MIDTERMS, pairs, args.midterm_card, Path(scratch), args))
        if args.wikidyk is not None:
            facts = json.loads(args.wikidyk.read_text(encoding="utf-8"))["rows"][:300]
            corpus = Path(scratch) / "facts.txt"
            corpus.write_text("".join(f"{stated(row['fact'])}\n" for row in facts), encoding="utf-8")
            pairs = [("as it is", Question(row["input"], (row["output"],))) for row in facts][:: args.every]
            reports.append(compare("wikidyk", corpus, pairs, args.wikidyk_card, Path(scratch), args))
    print(json.dumps(reports) if args.json else "\n\n".join(map(table, reports)))


def midterm(path: Path, every: int = 1) -> list[tuple[str, Question]]:
    """Every Nth question, in all forms."""
    rows = []
    for row in json.loads(path.read_text(encoding="utf-8"))["testset"][::every]:
        rows += [(form, Question(text, (row["answer"],))) for form, text in reworded(row["question"])]
    return rows


def reworded(question: str) -> list[tuple[str, str]]:
    race = RACE.fullmatch(question)
    if race is None:
        return [("as it is", question)]
    office, seat, state = race["office"], race["seat"] or "", race["state"]
    described = {"senate": "senator", "governor": "its top office"}
    parts = {
        "state": state,
        "race": f"the {office} race" if office else f"the {seat} congressional district",
        "seat": {"senate": "the seat in the senate", "governor": "the governorship"}.get(
            office, f"the {seat} district"
        ),
        "described": described.get(office, f"its {spelled(seat)} House seat"),
    }
    return [(form, question if text is None else text.format(**parts)) for form, text in FORMS.items()]


def spelled(seat: str) -> str:
    """Ordinals below ten as words, which shares no word with "7th"."""
    number = re.match(r"\d+", seat)
    return UNITS[int(number[0])] if number and int(number[0]) < len(UNITS) else seat


def compare(
    name: str,
    corpus: Path,
    pairs: Sequence[tuple[str, Question]],
    trained: Path | None,
    scratch: Path,
    args: argparse.Namespace,
) -> dict[str, Any]:
    home = scratch / name
    home.mkdir()
    cards, training = learn(home, corpus, trained, args.seed)
    cards.insert(1, lexical(cards[1], home))
    statements = [source.text for source in passages(cards[0].folder)]
    questions = [FormQuestion(form, q, common(q, statements)) for form, q in pairs]
    rows, differences = table_of(cards, questions, grouped(questions), home, args.mode)
    if args.missing:
        facts = sorted({a.question.answers for a in questions})
        hidden = set(Random(args.seed).sample(facts, round(args.missing * len(facts))))
        some = [a for a in questions if a.question.answers in hidden]
        lacking = [without(card, some, home / "missing") for card in cards]
        groups = {
            f"missing, {label}": g for label, g in grouped(some).items() if not label.startswith("words")
        }
        more = table_of(lacking, some, groups, home / "missing", args.mode)
        rows, differences = rows + more[0], differences | more[1]
    report = {"data": name, "mode": args.mode, "questions": len(questions), **training}
    return report | {"rows": rows, "both - index": differences}


def table_of(
    cards: Sequence[Card],
    items: Sequence[FormQuestion],
    groups: Mapping[str, Sequence[int]],
    home: Path,
    mode: str,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each card and group of questions, and for each group the card of both against its index."""
    hub, rows, right = Hub(home), [], {}
    for card in cards:
        hub.publish(card.folder)
        answers, seconds = answered(card, items, hub, MODES[mode])
        for label, group in groups.items():
            pairs = [(items[i], answers[i]) for i in group]
            rows.append(measured(card, label, pairs, seconds))
        right[card.name] = [
            float(exact_match(x.answer, a.question.answers)) for a, x in zip(items, answers, strict=True)
        ]
    both, index = right["both"], right["index"]
    return rows, {
        label: asdict(compare_scores([both[i] for i in group], [index[i] for i in group]))
        for label, group in groups.items()
    }


def without(card: Card, pairs: Sequence[FormQuestion], home: Path) -> Card:
    """A copy whose index lacks every passage that holds an answer; a model alone stays as it is."""
    folder = home / card.name
    shutil.copytree(card.folder, folder)
    if not card.manifest.index and card.manifest.kind != "retrieval":
        return Card.open(folder)
    remaining = [p for p in passages(card.folder) if not any(holds(p.text, a.question) for a in pairs)]
    return finish(folder, card.manifest, remaining)


def lexical(index: Card, home: Path) -> Card:
    """The same index without the encoder, which reads English only: a card of no named language."""
    copy = renamed(index, home, "bm25", kind="retrieval")
    return finish(copy.folder, replace(copy.manifest, language="und"), list(passages(index.folder)))


def common(question: Question, statements: Sequence[str]) -> float:
    needed = set(words(question.text)) - SMALL - ASKING
    holding = [text for text in statements if holds(text, question)] or statements
    return max(len(needed & set(words(text))) for text in holding) / max(len(needed), 1)


def answered(
    card: Card, pairs: Sequence[FormQuestion], hub: Hub, options: dict[str, Any]
) -> tuple[list[Answer], float]:
    """The answers, and wall seconds a question; the models are loaded before the clock starts."""
    pipeline = Pipeline(hub=hub, cards=[card.name], **options)
    pipeline([pairs[0].question.text])
    begun, texts = time.perf_counter(), [a.question.text for a in pairs]
    answers = [x for at in range(0, len(texts), BATCH) for x in pipeline(texts[at : at + BATCH])]
    return answers, (time.perf_counter() - begun) / len(texts)


def grouped(pairs: Sequence[FormQuestion]) -> dict[str, list[int]]:
    """The numbers of all questions, of those of each form, and of each bin of words in common."""
    groups = {"all": [*range(len(pairs))]}
    for form in dict.fromkeys(a.form for a in pairs):
        groups[f"form: {form}"] = [i for i, a in enumerate(pairs) if a.form == form]
    above = 2.0
    for label, floor in BINS:
        groups[f"words in common: {label}"] = [i for i, a in enumerate(pairs) if floor <= a.common < above]
        above = floor
    return {label: group for label, group in groups.items() if group}


def measured(
    card: Card, label: str, group: Sequence[tuple[FormQuestion, Answer]], seconds: float
) -> dict[str, Any]:
    used = [name for name in card.manifest.files if card.name != "model" or not name.startswith("index/")]
    size = sum((card.folder / name).stat().st_size for name in used)
    return {
        "card": card.name,
        "questions": label,
        "n": len(group),
        "EM": share(bool(exact_match(x.answer, a.question.answers)) for a, x in group),
        "don't know": share(x.answer == UNKNOWN_ANSWER for _, x in group),
        "written": share(any(holds(p.text, a.question) for p in x.passages) for a, x in group),
        "kept": share(any(holds(p.knowledge, a.question) for p in x.passages if p.kept) for a, x in group),
        "by the index": share(any(p.source is not None for p in x.passages if p.kept) for _, x in group),
        "s a question": round(seconds, 3),
        "kB": size // 1000,
    }


def table(report: dict[str, Any]) -> str:
    head = (
        f"{report['data']}, {report['mode']}: {report['questions']} questions, {report['passages']} passages"
    )
    whole = [row for row in report["rows"] if row["questions"] == "all"]
    columns = ("card", "EM", "don't know", "written", "kept", "by the index", "s a question", "kB")
    cards = [row["card"] for row in whole]
    parts: dict[str, dict[str, Any]] = {}
    for row in report["rows"]:
        part = parts.setdefault(row["questions"], {"EM of": row["questions"], "n": row["n"]})
        part[row["card"]] = row["EM"]
    for label, c in report["both - index"].items():
        parts[label]["both - index"] = (
            f"{c['difference']:+.3f} [{c['low']:+.3f}, {c['high']:+.3f}], {c['better']}:{c['worse']}, p {c['p']:.2g}"
        )
    return f"{head}\n\n{rows(columns, whole)}\n\n{rows(('EM of', 'n', *cards, 'both - index'), list(parts.values()))}"


if __name__ == "__main__":
    main()
